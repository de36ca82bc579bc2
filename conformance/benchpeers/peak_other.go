//go:build !unix

package main

import "os"

// peakResident returns 0: this system does not report it.
func peakResident(*os.ProcessState) int64 { return 0 }
