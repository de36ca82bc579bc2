//go:build unix

package gguf

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenRefusesPipe opens a pipe without a writer, as the file and as the second of two shards.
// Open must not wait.
func TestOpenRefusesPipe(t *testing.T) {
	dir := t.TempDir()
	if err := shardOf(0, 2, 2).WriteFile(filepath.Join(dir, shardName(0, 2))); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, shardName(1, 2))
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		done := make(chan error, 1)
		go func() {
			_, err := Open(filepath.Join(dir, shardName(i, 2)))
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.HasPrefix(err.Error(), pipe+": is not a regular file") {
				t.Errorf("from shard %d: error %v, expected one about %s", i+1, err, pipe)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("from shard %d: still waiting", i+1)
		}
	}
}
