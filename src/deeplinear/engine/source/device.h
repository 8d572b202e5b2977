// What `device.cu` needs of the machine: a graphics card, or threads of a processor that stand for those of one block.
#pragma once

#ifdef __CUDACC__

// NVRTC has no standard library. Everything is compiled for the device (-default-device).
typedef int int32_t;
typedef long long int64_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
#define NAN __longlong_as_double(0x7ff8000000000000LL)
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e308
namespace std {
template <class T> inline const T &min(const T &a, const T &b) { return b < a ? b : a; }
template <class T> inline const T &max(const T &a, const T &b) { return a < b ? b : a; }
template <class T> inline void copy(const T *from, const T *end, T *to) { while (from != end) *to++ = *from++; }
using ::cbrt;
using ::fabs;
using ::isfinite;
using ::log;
using ::pow;
using ::sqrt;
}  // namespace std
#define SELDOM __noinline__
#if GROUP > 32
#define SYNC() __syncthreads()
#else
#define SYNC() __syncwarp()
#endif
namespace engine {
inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
}  // namespace engine

#else

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
namespace engine {
using std::max;
using std::min;
struct Place { unsigned x; };
inline thread_local Place threadIdx{0};
void meet();  // until all threads of the block have come
uint64_t nanoseconds();
inline int atomicAdd(int *where, int by) { return __atomic_fetch_add(where, by, __ATOMIC_RELAXED); }
}  // namespace engine
#define SELDOM static
#define SYNC() engine::meet()

#endif
