//go:build unix

package dense

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pesti/conformance/testenv"
)

// A pipe without a writer is refused at once.
func TestNpyPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.npy")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		testenv.Lacks(t, err)
	}
	if _, err := OpenNpy(path); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("error %v, want a refusal", err)
	}
}
