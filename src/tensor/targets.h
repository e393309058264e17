// The instruction sets that vector code is compiled for; one is chosen at run time.
//
// Included before anything of Highway. On x86 that leaves SSE4.2 (the build's baseline for
// these files), AVX2 and AVX-512. The one before SSE4.2 would serve no machine in use, and AES is
// none of our business.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3)
#define HWY_DISABLE_PCLMUL_AES
