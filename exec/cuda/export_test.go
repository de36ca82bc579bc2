package cuda

// RandomWeight is for tests of kernels. They are in package cuda_test, because the virtual device imports this package.
var RandomWeight = randomWeight

// StaticShared is the bound on the static shared memory of product and attention kernels.
const StaticShared = staticShared
