package cuda

// RandomWeight is for tests of kernels, which are in a package of their own: the virtual device imports this one.
var RandomWeight = randomWeight

// StaticShared is the bound on the static shared memory of product and attention kernels.
const StaticShared = staticShared
