package kernel

var assemblyMultipliers []multiplierVariant
