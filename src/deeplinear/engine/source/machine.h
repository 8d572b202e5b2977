// What the machine offers. Asked of the processor itself: the runtime of ziglang has no `__builtin_cpu_supports`.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace engine {

#if defined(__x86_64__)
// Whether the operating system keeps all registers of a mask when it changes between threads.
inline bool keeps_registers(unsigned mask) {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}
#endif

// The widest registers this machine has: 8, 4 or 2 numbers.
inline int widest() {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 2;
  const bool fma = c & bit_FMA;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !fma) return 2;
  const unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL;
  if ((b & wide) == wide && keeps_registers(0xe6)) return 8;
  if ((b & bit_AVX2) && keeps_registers(0x06)) return 4;
#endif
  return 2;
}

}  // namespace engine
