// Package rules tests properties of the source that the compiler does not check: which package may
// import which, and the wording of comments. Its tests read every file of the module. They are in a
// separate package because Go reruns all tests of a package after a change of a file that one of
// them reads. It imports nothing.
package rules
