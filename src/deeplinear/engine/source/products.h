// Products of small matrices, in any orientation: c (m x n) = a (m x k) b (k x n), entry (i, j) of a at a[i*ra + j*ca].
#pragma once
#include <algorithm>
#include <type_traits>
#include "lanes.h"

// Inlined whatever the compiler thinks: a call takes as long as a product of three by three.
#define INLINE inline __attribute__((always_inline))

namespace engine {

// Row-major c, one network a lane: a tile of c stays in registers.
template <int R, int C>
INLINE void tile(int k, const Lanes *a, int ra, int ca, const Lanes *b, int rb, int cb, Lanes *c, int n, bool add) {
  Lanes s[R][C];
  for (int i = 0; i < R; i++)
    for (int j = 0; j < C; j++) s[i][j] = add ? c[i * n + j] : Lanes{};
  for (int q = 0; q < k; q++)
    for (int i = 0; i < R; i++) {
      const Lanes x = a[i * ra + q * ca];
      for (int j = 0; j < C; j++) s[i][j] += x * b[q * rb + j * cb];
    }
  for (int i = 0; i < R; i++)
    for (int j = 0; j < C; j++) c[i * n + j] = s[i][j];
}

// R rows of c, at most C columns at once.
template <int R, int C>
INLINE void rows(int n, int k, const Lanes *a, int ra, int ca, const Lanes *b, int rb, int cb, Lanes *c, bool add) {
  int j = 0;
  for (; j + C <= n; j += C) tile<R, C>(k, a, ra, ca, b + j * cb, rb, cb, c + j, n, add);
  if (n - j == 3)
    tile<R, C == 4 ? 3 : 1>(k, a, ra, ca, b + j * cb, rb, cb, c + j, n, add);
  else if (n - j == 2)
    tile<R, C == 4 ? 2 : 1>(k, a, ra, ca, b + j * cb, rb, cb, c + j, n, add);
  else if (n - j == 1)
    tile<R, 1>(k, a, ra, ca, b + j * cb, rb, cb, c + j, n, add);
}

// Products of two square matrices of a size known beforehand, either of them transposed: no loop is left of them.
template <int N, bool LEFT, bool RIGHT> INLINE void square(const Lanes *a, const Lanes *b, Lanes *c, bool add) {
  Lanes s[N][N];
#pragma GCC unroll 4
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) s[i][j] = add ? c[i * N + j] : Lanes{};
#pragma GCC unroll 4
  for (int q = 0; q < N; q++)
#pragma GCC unroll 4
    for (int i = 0; i < N; i++)
#pragma GCC unroll 4
      for (int j = 0; j < N; j++) s[i][j] += a[LEFT ? q * N + i : i * N + q] * b[RIGHT ? j * N + q : q * N + j];
#pragma GCC unroll 4
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) c[i * N + j] = s[i][j];
}

template <int N> INLINE void square(const Lanes *a, bool left, const Lanes *b, bool right, Lanes *c, bool add) {
  if (right)
    square<N, false, true>(a, b, c, add);
  else if (left)
    square<N, true, false>(a, b, c, add);
  else
    square<N, false, false>(a, b, c, add);
}

constexpr int COLUMNS = LANES == 8 ? 4 : 2;  // accumulators that fit the registers

struct Blas {
  void (*dgemm)(char *, char *, int *, int *, int *, double *, const double *, int *, const double *, int *, double *,
                double *, int *);
  double least;  // multiplications from which a product of a wide network goes to dgemm
};

inline void multiply(const Blas &, Array<double> &, int m, int k, int n, const Lanes *a, int ra, int ca,
                     const Lanes *b, int rb, int cb, Lanes *c, bool add = false) {
  const bool left = ca == n && ra == 1, right = cb == n && rb == 1;
  const bool whole = (left || (ra == n && ca == 1)) && (right || (rb == n && cb == 1)) && !(left && right);
  if (LANES == 8 && m == n && k == n && whole) {
    if (n == 2) return square<2>(a, left, b, right, c, add);
    if (n == 3) return square<3>(a, left, b, right, c, add);
  }
  int i = 0;
  for (; i + 4 <= m; i += 4) rows<4, COLUMNS>(n, k, a + i * ra, ra, ca, b, rb, cb, c + i * n, add);
  switch (m - i) {
    case 3: rows<3, COLUMNS>(n, k, a + i * ra, ra, ca, b, rb, cb, c + i * n, add); break;
    case 2: rows<2, COLUMNS>(n, k, a + i * ra, ra, ca, b, rb, cb, c + i * n, add); break;
    case 1: rows<1, COLUMNS>(n, k, a + i * ra, ra, ca, b, rb, cb, c + i * n, add); break;
  }
}

// One wide network: columns of c lie side by side in a register.
inline Lanes load(const double *p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <int R, int C>
inline void block(int k, const double *a, int ra, int ca, const double *b, int width, double *c, int n, int room,
                  bool add) {
  Lanes s[R][C] = {};
  for (int q = 0; q < k; q++) {
    Lanes x[C];
    for (int j = 0; j < C; j++) x[j] = load(b + q * width + j * LANES);
    for (int i = 0; i < R; i++)
      for (int j = 0; j < C; j++) s[i][j] += a[i * ra + q * ca] * x[j];
  }
  for (int i = 0; i < R; i++)
    for (int j = 0; j < C; j++)
      for (int l = 0; l < LANES && j * LANES + l < room; l++) {
        double &out = c[i * n + j * LANES + l];
        out = add ? out + s[i][j][l] : s[i][j][l];
      }
}

template <int R>
inline void strip(int n, int width, int k, const double *a, int ra, int ca, const double *b, double *c, bool add) {
  int j = 0;
  for (; j + 2 * LANES <= width; j += 2 * LANES) block<R, 2>(k, a, ra, ca, b + j, width, c + j, n, n - j, add);
  if (j < width) block<R, 1>(k, a, ra, ca, b + j, width, c + j, n, n - j, add);
}

// Adds the products of a with N vectors that lie `apart` numbers apart.
template <int N> inline void dots(int k, const double *a, const double *b, int apart, double *c) {
  Lanes s[N] = {};
  int q = 0;
  for (; q + LANES <= k; q += LANES) {
    const Lanes x = load(a + q);
    for (int j = 0; j < N; j++) s[j] += x * load(b + j * apart + q);
  }
  for (int j = 0; j < N; j++) {
    double sum = 0;
    for (int l = 0; l < LANES; l++) sum += s[j][l];
    for (int r = q; r < k; r++) sum += a[r] * b[j * apart + r];
    c[j] += sum;
  }
}

inline void store(double *p, const Lanes &v) { std::memcpy(p, &v, sizeof v); }

// right += A r and left += l A, for which A (n x n) is read once. Where A is symmetric both are made in one way, so that
// from the same vectors come the same ones.
template <bool SYMMETRIC>
inline void both_sides(int n, const double *a, const double *r, const double *l, double *right, double *left) {
  int i = 0;
  auto four = [&](auto rows) {
    constexpr int R = decltype(rows)::value;
    for (; i + R <= n; i += R) {
      const double *p = a + size_t(i) * n;
      Lanes s[R] = {};
      int j = 0;
      for (; j + LANES <= n; j += LANES) {
        Lanes to_left = load(left + j), to_right{};
        const Lanes x = load(SYMMETRIC ? right + j : r + j);
        if (SYMMETRIC) to_right = x;
        for (int q = 0; q < R; q++) {
          const Lanes here = load(p + q * n + j);
          to_left += l[i + q] * here;
          if (SYMMETRIC)
            to_right += r[i + q] * here;
          else
            s[q] += x * here;
        }
        store(left + j, to_left);
        if (SYMMETRIC) store(right + j, to_right);
      }
      for (; j < n; j++)
        for (int q = 0; q < R; q++) {
          left[j] += l[i + q] * p[q * n + j];
          if (SYMMETRIC)
            right[j] += r[i + q] * p[q * n + j];
          else
            right[i + q] += p[q * n + j] * r[j];
        }
      if (!SYMMETRIC)
        for (int q = 0; q < R; q++)
          for (int lane = 0; lane < LANES; lane++) right[i + q] += s[q][lane];
    }
  };
  four(std::integral_constant<int, 4>());
  four(std::integral_constant<int, 1>());
}

// Few rows of c: each is made from rows of b, or from its columns, as they lie in memory.
inline void thin(int m, int k, int n, const double *a, int ra, int ca, const double *b, int rb, int cb, double *c,
                 bool add) {
  for (int i = 0; i < m; i++, c += n, a += ra) {
    if (!add)
      for (int j = 0; j < n; j++) c[j] = 0;
    if (cb == 1) {
      int q = 0;
      for (; q + 4 <= k; q += 4) {
        const double *p = b + q * rb, x0 = a[q * ca], x1 = a[(q + 1) * ca], x2 = a[(q + 2) * ca], x3 = a[(q + 3) * ca];
        for (int j = 0; j < n; j++) c[j] += x0 * p[j] + x1 * p[rb + j] + x2 * p[2 * rb + j] + x3 * p[3 * rb + j];
      }
      for (; q < k; q++)
        for (int j = 0; j < n; j++) c[j] += a[q * ca] * b[q * rb + j];
      continue;
    }
    int j = 0;
    for (; j + 4 <= n; j += 4) dots<4>(k, a, b + j * cb, cb, c + j);
    for (; j < n; j++) dots<1>(k, a, b + j * cb, cb, c + j);
  }
}

inline void multiply(const Blas &blas, Array<double> &room, int m, int k, int n, const double *a, int ra, int ca,
                     const double *b, int rb, int cb, double *c, bool add = false) {
  if (blas.dgemm && double(m) * n * k >= blas.least) {
    // Column-major, so that what is asked for is the transpose of c: that of b times that of a.
    char left = cb == 1 ? 'N' : 'T', right = ca == 1 ? 'N' : 'T';
    // The step of a matrix with one row or column is not used, but must be as if it had more.
    int lb = cb == 1 ? std::max(rb, n) : std::max(cb, k), la = ca == 1 ? std::max(ra, k) : std::max(ca, m);
    double one = 1, beta = add ? 1 : 0;
    blas.dgemm(&left, &right, &n, &m, &k, &one, b, &lb, a, &la, &beta, c, &n);
    return;
  }
  if (m < 4 && (cb == 1 || (rb == 1 && ca == 1))) return thin(m, k, n, a, ra, ca, b, rb, cb, c, add);
  const int width = (n + LANES - 1) / LANES * LANES;
  const double *packed = b;
  if (cb != 1 || width != n || rb != n) {
    if (int(room.size()) < k * width) room.resize(k * width);
    for (int q = 0; q < k; q++) {
      double *to = &room[q * width];
      for (int j = 0; j < n; j++) to[j] = b[q * rb + j * cb];
      for (int j = n; j < width; j++) to[j] = 0;
    }
    packed = room.data();
  }
  int i = 0;
  for (; i + 4 <= m; i += 4) strip<4>(n, width, k, a + i * ra, ra, ca, packed, c + i * n, add);
  switch (m - i) {
    case 3: strip<3>(n, width, k, a + i * ra, ra, ca, packed, c + i * n, add); break;
    case 2: strip<2>(n, width, k, a + i * ra, ra, ca, packed, c + i * n, add); break;
    case 1: strip<1>(n, width, k, a + i * ra, ra, ca, packed, c + i * n, add); break;
  }
}

}  // namespace engine
