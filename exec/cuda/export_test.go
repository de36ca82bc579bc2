package cuda

// RandomWeight is for tests of kernels, which are in a package of their own: the virtual device imports this one.
var RandomWeight = randomWeight

// StaticShared is what the kernels of products and attention are held to.
const StaticShared = staticShared
