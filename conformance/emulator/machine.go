package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kernels are the Debian kernels for virtual machines: they initialize little, and unpack fast.
const kernels = "/boot/vmlinuz-*-cloud-amd64"

// Programs and files of the machine, with the Debian package of each.
var parts = []struct{ path, debian string }{
	{"/usr/bin/bochs-bin", "bochs"},
	{"/usr/lib/x86_64-linux-gnu/bochs/plugins/libbx_term_gui.so", "bochs-term"},
	{bios, "bochsbios"},
	{vgaBIOS, "vgabios"},
	{"/usr/bin/genisoimage", "genisoimage"},
	{loader, "isolinux"},
	{loaderCore, "syslinux-common"},
}

const (
	bios       = "/usr/share/bochs/BIOS-bochs-latest"
	vgaBIOS    = "/usr/share/vgabios/vgabios.bin"
	loader     = "/usr/lib/ISOLINUX/isolinux.bin"
	loaderCore = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
)

// options are boot options of the kernel. They switch off slow parts: tests of ciphers,
// certificates, names for traces. Bochs reports fast short copies (fsrm) although it does not
// report fast copies; with that combination Linux 6.1 copies too many bytes.
const options = "console=ttyS0,115200 loglevel=1 panic=-1 nosmp acpi=off mitigations=off tsc=reliable lsm= " +
	"clearcpuid=fsrm cryptomgr.notests initcall_blacklist=load_system_certificate_list,trace_eval_init"

// debian are boot options that switch off features which Debian's Bochs 2.7 reports but does not
// implement correctly: saved registers lack the protection keys, and their compact form has a wrong
// size.
const debian = " nopku clearcpuid=pku,ospke,xsavec,xsaves,fsrm"

// configuration is the configuration of Bochs. A second of the machine is ten million instructions,
// which is few, so that waiting for the clock is short. The machine prints to the file serial.
const configuration = `
config_interface: textconfig
display_library: term
cpu: model=%s, ips=10000000, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=` + bios + `
vgaromimage: file=` + vgaBIOS + `
ata0: enabled=1
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
clock: sync=none
com1: enabled=1, mode=file, dev=serial
log: log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
`

// A machine is an emulated machine that runs a program.
type machine struct {
	kernel string
	bochs  string // "" for Debian's
	cpu    string
	limit  time.Duration
	out    io.Writer // receives the output of the program
}

// run runs the program and returns its status. The files of the machine are temporary.
func (m *machine) run(program string, args []string) (status int, err error) {
	if err := m.complete(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "emulator")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := m.build(dir, program, args); err != nil {
		return 0, err
	}

	// Debian's Bochs has a debugger, which waits for the command to continue.
	bochs := exec.Command("bochs-bin", "-q", "-f", "configuration", "-rc", "debugger")
	if m.bochs != "" {
		bochs = exec.Command(m.bochs, "-q", "-f", "configuration")
	}
	bochs.Dir = dir
	bochs.Env = append(os.Environ(), "TERM=vt100")
	if err := bochs.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- bochs.Wait()
		close(ended)
	}()
	defer func() {
		_ = bochs.Process.Kill() // it may have ended
		for range ended {
		}
	}()

	limit, look := time.After(m.limit), time.NewTicker(200*time.Millisecond)
	defer look.Stop()
	printed := 0
	for {
		var failed error
		select {
		case <-look.C:
		case <-limit:
			failed = fmt.Errorf("switched off after %v", m.limit)
		case err := <-ended:
			failed = fmt.Errorf("bochs ended: %v", err)
		}
		all, _ := os.ReadFile(filepath.Join(dir, "serial")) // a missing file counts as empty
		text, status, complete := output(all)
		if !complete { // the last line may be the start of the end marker
			text = text[:bytes.LastIndexByte(text, '\n')+1]
		}
		if len(text) > printed {
			if _, err := m.out.Write(text[printed:]); err != nil {
				return 0, err
			}
			printed = len(text)
		}
		switch {
		case complete:
			return status, nil
		case failed != nil:
			return 0, fmt.Errorf("%w; the machine's last lines are:\n%s", failed, all[max(0, len(all)-2000):])
		}
	}
}

// output returns the output of the program so far, and its status if it has ended.
func output(serial []byte) (text []byte, status int, complete bool) {
	serial = bytes.ReplaceAll(serial, []byte("\r\n"), []byte("\n"))
	_, text, _ = bytes.Cut(serial, []byte(begin))
	text, rest, _ := bytes.Cut(text, []byte(end))
	number, _, complete := strings.Cut(string(rest), "\n")
	status, err := strconv.Atoi(number)
	return text, status, complete && err == nil
}

// complete finds the kernel and checks that all parts are installed.
func (m *machine) complete() error {
	if m.kernel == "" {
		if found, _ := filepath.Glob(kernels); found != nil {
			m.kernel = found[len(found)-1]
		}
	}
	var missing []string
	for _, p := range parts {
		if _, err := os.Stat(p.path); err != nil {
			missing = append(missing, p.debian)
		}
	}
	if m.kernel == "" {
		missing = append(missing, "linux-image-cloud-amd64")
	}
	if missing != nil {
		return fmt.Errorf("missing parts, install Debian's %s", strings.Join(missing, " "))
	}
	return nil
}

// build writes the machine's disk, with the program, and its configuration.
func (m *machine) build(dir, program string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var files archive
	files.directory("tmp")
	files.null()
	files.file(argsFile, list(args))
	files.file(envFile, list(environment(os.Environ())))
	for name, path := range map[string]string{initFile: self, programFile: program} {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files.file(name, data)
	}
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return err
	}
	for name, path := range map[string]string{"linux": m.kernel, "isolinux.bin": loader, "ldlinux.c32": loaderCore} {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(disk, name), data, 0o644); err != nil {
			return err
		}
	}
	kernel := options
	if m.bochs == "" {
		kernel += debian
	}
	for name, text := range map[string]string{
		"disk/files":        string(files.end()),
		"disk/isolinux.cfg": "default linux\nlabel linux\nkernel linux\nappend initrd=files " + kernel + "\n",
		"configuration":     fmt.Sprintf(configuration, m.cpu),
		"debugger":          "continue\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	iso := exec.Command("genisoimage", "-quiet", "-o", filepath.Join(dir, "boot.iso"), "-b", "isolinux.bin", "-c", "boot.cat",
		"-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", disk)
	if message, err := iso.CombinedOutput(); err != nil {
		return fmt.Errorf("genisoimage: %w: %s", err, message)
	}
	return nil
}

// environment returns the host's variables for the program: those variables that this project's
// tests read. Bochs fails at the instructions with which Go's garbage collector scans memory on
// AVX-512 DQ, so they are switched off.
func environment(host []string) []string {
	env := []string{"HOME=/tmp", "TMPDIR=/tmp", "GODEBUG=cpu.avx512dq=off"}
	for _, v := range host {
		if strings.HasPrefix(v, "PESTI_") {
			env = append(env, v)
		}
	}
	return env
}
