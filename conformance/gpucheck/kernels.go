package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// deviceVariable names the device for the tests of the kernels, which otherwise use the virtual
// device.
const deviceVariable = "PESTI_DEVICE"

// checkKernels runs the compiled tests of the kernels on the device. They compare each kernel with
// its reference. One of the tests reads a source file, which need not be present.
func checkKernels(ctx context.Context, o *options, f found) error {
	args := []string{"-test.v", "-test.short", "-test.skip", "^TestHeader$"}
	if o.quick {
		args = append(args, "-test.run", "Norm|Gated|E4M3")
	}
	cmd := exec.CommandContext(ctx, o.kernels, args...)
	cmd.Env = append(os.Environ(), deviceVariable+"="+o.device)
	out, err := cmd.CombinedOutput()
	count := map[string]int{}
	var failed []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		for _, verdict := range []string{"PASS", "FAIL", "SKIP"} {
			if name, ok := strings.CutPrefix(line, "--- "+verdict+": "); ok {
				count[verdict]++
				if verdict == "FAIL" {
					failed = append(failed, name)
				}
			}
		}
	}
	f["passed"], f["failed"], f["skipped"] = count["PASS"], failed, count["SKIP"]
	switch {
	case err != nil && len(failed) > 0:
		f["output"] = string(out)
		return fmt.Errorf("failed: %s", strings.Join(failed, "; "))
	case err != nil:
		return fmt.Errorf("%s: %w: %.300s", o.kernels, err, out)
	case count["PASS"] == 0:
		return errors.New("no test ran")
	}
	return nil
}
