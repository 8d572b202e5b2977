// Numbers of the engine: `Lanes` holds one number of each of LANES networks; `double` one number of a single, wide one.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifndef LANES
#define LANES 2
#endif

namespace engine {

typedef double Lanes __attribute__((vector_size(8 * LANES)));

template <class T> constexpr int lanes_of = sizeof(T) / sizeof(double);

inline double get(const Lanes &v, int lane) { return v[lane]; }
inline double get(const double &v, int) { return v; }
inline void put(Lanes &v, int lane, double x) { v[lane] = x; }
inline void put(double &v, int, double x) { v = x; }

template <class T> inline T all(double x) {
  T v;
  for (int lane = 0; lane < lanes_of<T>; lane++) put(v, lane, x);
  return v;
}

template <class T> using Array = std::vector<T>;

}  // namespace engine
