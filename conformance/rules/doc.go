// Package rules tests what no compiler checks of the source: which package may import which, and
// what package comments say. Its tests read every file of the module, so they have a package of
// their own: Go runs a package's tests again when a file that one of them read has changed. It
// imports nothing.
package rules
