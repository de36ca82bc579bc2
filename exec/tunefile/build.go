package tunefile

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// build describes the build of this process: compiler, version, instruction set level and executable. Builds of a
// working copy share the version "(devel)", so only the executable distinguishes them.
func build() string {
	text := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.Main.Version
		for _, s := range info.Settings {
			if strings.HasPrefix(s.Key, "vcs.") || s.Key == "GOAMD64" {
				text += " " + s.Value
			}
		}
	}
	if path, err := os.Executable(); err == nil {
		text += " " + executableID(path)
	}
	return text
}

// executableID returns the build ID of an executable, which contains a hash of all inputs of the build. For an
// executable without an ELF note of it (https://pkg.go.dev/cmd/internal/buildid), that is its size and time, and ""
// if the file cannot be read. Only headers are read.
func executableID(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if id := noteID(f); id != "" {
		return id
	}
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %d", st.Size(), st.ModTime().UnixNano())
}

// noteID returns the build ID of an ELF file, or "". The note has two lengths and a type of four bytes each, the name
// "Go" in four bytes, and the ID.
func noteID(f *os.File) string {
	file, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	section := file.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	const header = 16
	if err != nil || len(note) < header || string(note[12:header]) != "Go\x00\x00" {
		return ""
	}
	length := file.ByteOrder.Uint32(note[4:])
	return string(note[header:min(uint64(len(note)), header+uint64(length))])
}
