// Flows on a graphics card: a group of threads moves one network from start to end, whole blocks take one after the other.
//
// Compiled for each shape, with these numbers given:
//   WIDTHS, DEPTH  widths of the layers, filled up with zeros to multiples of TILE: zeros stay zero along a flow
//   TILE           side of the tiles that a thread has of each matrix, 1 or 2
//   GROUP, GROUPS  threads that move one network, and networks of a block
//   LOSS           as in `Spec`
//   STAGES         of the explicit pair
//   CROWD          blocks that a multiprocessor should hold at least
// The law of step control and what Python hands over are those of the engine for processors. What differs: derivatives
// of the slope are central differences, and there is no dense linear algebra, so stiff networks stay with the
// stabilised family. All matrices of a stage lie in shared memory; each thread has its tiles of the weights, of the
// slopes and of all stages.
#include "device.h"
#include "law.h"

namespace engine {

#define EACH _Pragma("unroll")
constexpr int BLOCK = GROUP > 32 ? (GROUP + 31) / 32 * 32 : 32;
constexpr int TILES = TILE * TILE;

constexpr int width(int l) {
  constexpr int widths[] = {WIDTHS};
  return widths[l];
}
constexpr int COLUMNS = width(0), ROWS = width(DEPTH);

// Tiles of a layer, and how many of them a thread has at the most.
constexpr int tiles(int l) { return width(l) / TILE * (width(l - 1) / TILE); }
constexpr int share(int l) { return (tiles(l) + GROUP - 1) / GROUP; }

// Where a layer begins among all weights, and among the numbers of a thread.
constexpr int place(int l) {
  int sum = 0;
  for (int k = 1; k < l; k++) sum += width(k) * width(k - 1);
  return sum;
}
constexpr int own(int l) {
  int sum = 0;
  for (int k = 1; k < l; k++) sum += share(k) * TILES;
  return sum;
}
constexpr int WEIGHTS = place(DEPTH + 1), OWN = own(DEPTH + 1);

// Where products W_l ... W_1, l = 2 ... DEPTH - 1, and backward products of layer l = 2 ... DEPTH begin.
constexpr int above(int l, int from) {
  int sum = 0;
  for (int k = from; k < l; k++) sum += width(k) * COLUMNS;
  return sum;
}
constexpr int PREFIX = above(DEPTH > 2 ? DEPTH : 2, 2), BACKS = above(DEPTH + 1, 2);
constexpr int TOP = LOSS == 1 ? ROWS * COLUMNS : 0;
constexpr int SUMS = 2 * DEPTH + 3;

template <int N> struct Number { static constexpr int at = N; };
template <int A, int B, class F> inline void upward(F f) {
  if constexpr (A <= B) {
    f(Number<A>{});
    upward<A + 1, B>(f);
  }
}
template <int A, int B, class F> inline void downward(F f) {
  if constexpr (A >= B) {
    f(Number<A>{});
    downward<A - 1, B>(f);
  }
}

constexpr int room(int count) { return count < 2 ? 2 : count + (count & 1); }  // even, so that pairs can be read

// What a launch needs beside `Spec`.
struct Launch {
  double *f;                      // members x weights, slopes of networks that wait
  Control *saved;                 // of networks that wait
  double *states, *losses, *slopes;  // records: members x listed times (x weights)
  int *queue;                     // next network
  uint64_t slice;                 // nanoseconds after which a block comes back
  int32_t begins;                 // whether networks are only looked at, not moved
};

// What the threads of a block share.
struct alignas(16) Shared {
  struct Networks {
    double weights[room(WEIGHTS)], prefix[room(PREFIX)], backs[room(BACKS)], top[room(TOP)], sums[room(GROUP * SUMS)];
  };
  alignas(16) Networks networks[GROUPS];
  Control control[GROUPS];
  Trial trial[GROUPS];
  int who[GROUPS], fresh[GROUPS], take[GROUPS], due[GROUPS];
  int over;
};
enum { WANTS = -1, NONE = -2 };    // instead of the number of a network
enum { KNOWN, NEW, BACK };         // whether a network is here for the first time in this launch, or at all

struct alignas(16) Two { double x, y; };

// Adds a tile of a b, K terms; entry (i, k) of a is a[i * SA + k], or a[k * SA + i] where TA says so; likewise b.
template <int K, int SA, bool TA, int SB, bool TB>
inline void multiply(const double *a, const double *b, int r, int c, double *out) {
  if constexpr (TILE == 2) {
    EACH for (int k = 0; k < K; k += 2) {
      const Two a0 = *(const Two *)(TA ? a + k * SA + r : a + r * SA + k);
      const Two a1 = *(const Two *)(TA ? a + (k + 1) * SA + r : a + (r + 1) * SA + k);
      const Two b0 = *(const Two *)(TB ? b + c * SB + k : b + k * SB + c);
      const Two b1 = *(const Two *)(TB ? b + (c + 1) * SB + k : b + (k + 1) * SB + c);
      const double left[2][2] = {{a0.x, TA ? a1.x : a0.y}, {TA ? a0.y : a1.x, a1.y}};
      const double right[2][2] = {{b0.x, TB ? b1.x : b0.y}, {TB ? b0.y : b1.x, b1.y}};
      EACH for (int q = 0; q < 2; q++)
        EACH for (int i = 0; i < 2; i++)
          EACH for (int j = 0; j < 2; j++) out[2 * i + j] += left[i][q] * right[q][j];
    }
  } else
    EACH for (int k = 0; k < K; k++) out[0] += (TA ? a[k * SA + r] : a[r * SA + k]) * (TB ? b[c * SB + k] : b[k * SB + c]);
}

inline void write(double *to, int step, int r, int c, const double *tile) {
  EACH for (int i = 0; i < TILES; i++) to[(r + i / TILE) * step + c + i % TILE] = tile[i];
}
inline void read(const double *from, int step, int r, int c, double *tile) {
  EACH for (int i = 0; i < TILES; i++) tile[i] = from[(r + i / TILE) * step + c + i % TILE];
}

// One thread of a group, and the loss of its network.
struct Thread {
  Shared::Networks *s;
  int lane;
  bool on;
  const double *target, *mask, *sxx, *solution;
  double offset, l2;

  // The tiles of layer L that are this thread's.
  template <int L, class F> void mine(F f) const {
    constexpr int across = width(L - 1) / TILE;
    EACH for (int j = 0; j < share(L); j++) {
      const int tile = lane + j * GROUP;
      if (on && tile < tiles(L)) f(own(L) + j * TILES, tile / across * TILE, tile % across * TILE);
    }
  }
  // Its tiles of a product, `rows` x COLUMNS.
  template <int R, class F> void product(F f) const {
    constexpr int across = COLUMNS / TILE, count = R / TILE * across;
    for (int tile = lane; on && tile < count; tile += GROUP) f(tile / across * TILE, tile % across * TILE);
  }

  template <int L> const double *below() const { return L == 1 ? s->weights : s->prefix + above(L, 2); }
  template <int L> double *back() const { return s->backs + above(L, 2); }

  // The slope f of the flow at z; returns this thread's part of twice the loss without its constant, if it is wanted.
  double slope(const double *z, double *f, bool wanted) const {
    double part = 0;
    upward<1, DEPTH>([&](auto l) {
      constexpr int L = decltype(l)::at;
      mine<L>([&](int i, int r, int c) { write(s->weights + place(L), width(L - 1), r, c, z + i); });
    });
    SYNC();
    upward<2, DEPTH - 1>([&](auto l) {
      constexpr int L = decltype(l)::at;
      product<width(L)>([&](int r, int c) {
        double tile[TILES] = {};
        multiply<width(L - 1), width(L - 1), false, COLUMNS, false>(s->weights + place(L), below<L - 1>(), r, c, tile);
        write(s->prefix + above(L, 2), COLUMNS, r, c, tile);
      });
      SYNC();
    });
    auto end_to_end = [&](int r, int c, double *tile) {
      if constexpr (DEPTH == 1)
        read(s->weights, COLUMNS, r, c, tile);
      else
        multiply<width(DEPTH - 1), width(DEPTH - 1), false, COLUMNS, false>(s->weights + place(DEPTH),
                                                                            below<DEPTH - 1>(), r, c, tile);
    };
    // Minus the derivative with respect to the product: the last backward product.
    auto pulled = [&](int r, int c, const double *tile) {
      if constexpr (DEPTH == 1)
        write(s->weights, COLUMNS, r, c, tile);  // nobody else reads this tile
      else
        write(back<DEPTH>(), COLUMNS, r, c, tile);
    };
    if constexpr (LOSS == 1) {
      product<ROWS>([&](int r, int c) {
        double tile[TILES] = {};
        end_to_end(r, c, tile);
        write(s->top, COLUMNS, r, c, tile);
      });
      SYNC();
      product<ROWS>([&](int r, int c) {
        double tile[TILES] = {}, wish[TILES];
        multiply<COLUMNS, COLUMNS, false, COLUMNS, false>(s->top, sxx, r, c, tile);
        read(target, COLUMNS, r, c, wish);
        EACH for (int i = 0; i < TILES; i++) tile[i] = wish[i] - tile[i];
        pulled(r, c, tile);
      });
      SYNC();
      if (wanted) {
        product<ROWS>([&](int r, int c) {
          double tile[TILES], best[TILES];
          read(s->top, COLUMNS, r, c, tile), read(solution, COLUMNS, r, c, best);
          EACH for (int i = 0; i < TILES; i++) tile[i] -= best[i];
          write(s->top, COLUMNS, r, c, tile);
        });
        SYNC();
        product<ROWS>([&](int r, int c) {
          double tile[TILES], moved[TILES] = {};
          read(s->top, COLUMNS, r, c, tile);
          multiply<COLUMNS, COLUMNS, false, COLUMNS, false>(s->top, sxx, r, c, moved);
          EACH for (int i = 0; i < TILES; i++) part += tile[i] * moved[i];
        });
        SYNC();
      }
    } else {
      product<ROWS>([&](int r, int c) {
        double tile[TILES] = {}, wish[TILES], seen[TILES];
        end_to_end(r, c, tile);
        read(target, COLUMNS, r, c, wish);
        if constexpr (LOSS == 2) read(mask, COLUMNS, r, c, seen);
        EACH for (int i = 0; i < TILES; i++) {
          tile[i] = wish[i] - tile[i];
          if constexpr (LOSS == 2) tile[i] *= seen[i];
          part += tile[i] * tile[i];
        }
        pulled(r, c, tile);
      });
      SYNC();
    }
    downward<DEPTH, 2>([&](auto l) {
      constexpr int L = decltype(l)::at;
      mine<L>([&](int i, int r, int c) {
        double tile[TILES] = {};
        multiply<COLUMNS, COLUMNS, false, COLUMNS, true>(back<L>(), below<L - 1>(), r, c, tile);
        EACH for (int q = 0; q < TILES; q++) f[i + q] = tile[q];
      });
      auto pass = [&](int r, int c, double *tile) {
        multiply<width(L), width(L - 1), true, COLUMNS, false>(s->weights + place(L), back<L>(), r, c, tile);
      };
      if constexpr (L > 2)
        product<width(L - 1)>([&](int r, int c) {
          double tile[TILES] = {};
          pass(r, c, tile);
          write(back<(L > 2 ? L - 1 : 2)>(), COLUMNS, r, c, tile);
        });
      else
        mine<1>([&](int i, int r, int c) {
          double tile[TILES] = {};
          pass(r, c, tile);
          EACH for (int q = 0; q < TILES; q++) f[i + q] = tile[q];
        });
      SYNC();
    });
    if constexpr (DEPTH == 1) {
      mine<1>([&](int i, int r, int c) { read(s->weights, COLUMNS, r, c, f + i); });
      SYNC();
    }
    if (l2 != 0)
      EACH for (int i = 0; i < OWN; i++) f[i] -= l2 * z[i];
    return part;
  }

  // Loss from the sum of all parts and the squared norm of the weights.
  double loss(double sum, double square) const { return 0.5 * (sum + l2 * square) + offset; }

  // Sums over the threads of the group, to all of them.
  template <int N> void total(double *v) const {
    static_assert(N <= SUMS, "room for sums");
#ifdef __CUDACC__
    if constexpr (GROUP > 16) {
      EACH for (int q = 0; q < N; q++) {
        double x = on ? v[q] : 0;
        EACH for (int apart = 16; apart; apart >>= 1) x += __shfl_xor_sync(0xffffffffu, x, apart);
        v[q] = x;
      }
      if constexpr (BLOCK > 32) {
        if ((threadIdx.x & 31) == 0)
          EACH for (int q = 0; q < N; q++) s->sums[(threadIdx.x >> 5) * N + q] = v[q];
        SYNC();
        EACH for (int q = 0; q < N; q++) {
          double x = 0;
          EACH for (int warp = 0; warp < BLOCK / 32; warp++) x += s->sums[warp * N + q];
          v[q] = x;
        }
        SYNC();
      }
      return;
    }
#endif
    if (on)
      EACH for (int q = 0; q < N; q++) s->sums[lane * N + q] = v[q];
    SYNC();
    if (on)
      for (int q = lane; q < N; q += GROUP) {
        double x = 0;
        for (int other = 0; other < GROUP; other++) x += s->sums[other * N + q];
        s->sums[q] = x;  // read by nobody else
      }
    SYNC();
    EACH for (int q = 0; q < N; q++) v[q] = s->sums[q];
    SYNC();
  }
};

#define ALL EACH for (int i = 0; i < OWN; i++)

// Slope where speed does not matter, so that its code stands in the program once.
SELDOM double slope_at(const Thread &thread, const double *z, double *f, bool wanted) { return thread.slope(z, f, wanted); }

inline double seldom(const Thread &thread, const double *z, double *f, bool wanted = false) {
  double from[OWN], to[OWN];  // so that arrays of the caller can stay in registers
  ALL from[i] = z[i], to[i] = 0;
  const double part = slope_at(thread, from, to, wanted);
  ALL f[i] = to[i];
  return part;
}

// Derivative of the slope at y along v, of lengths `size` and `length`.
inline void derivative(const Thread &thread, const double *y, const double *v, double size, double length, double *out) {
  const double step = 1e-5 * (size > 0 ? size : 1.0) / (length > 0 ? length : 1.0);
  double z[OWN], ahead[OWN];
  ALL z[i] = y[i] + step * v[i];
  seldom(thread, z, ahead);
  ALL z[i] = y[i] - step * v[i];
  seldom(thread, z, out);
  ALL out[i] = (ahead[i] - out[i]) * (0.5 / step);
}

// One step of the explicit pair: the new state, its slope and the error; returns the part of the loss.
inline double explicit_step(const Thread &thread, const Pair &pair, double h, const double *y, const double *f,
                            double *next, double *slope, double *error) {
  double k[STAGES - 1][OWN], value = 0;  // places are known when this is compiled, so that they can be registers
  EACH for (int q = 1; q < STAGES - 1; q++) ALL k[q][i] = 0;
  auto of = [&](int q, int i) { return q == 0 ? f[i] : k[q][i]; };
  _Pragma("unroll 1") for (int stage = 1; stage < STAGES; stage++) {
    const double *weights = pair.lower + stage * STAGES;
    ALL next[i] = 0;
    EACH for (int q = 0; q < STAGES - 1; q++)
      if (q < stage && weights[q] != 0) ALL next[i] += weights[q] * of(q, i);
    ALL next[i] = y[i] + h * next[i];
    value = thread.slope(next, slope, stage == STAGES - 1);
    EACH for (int q = 1; q < STAGES - 1; q++)
      if (q == stage) ALL k[q][i] = slope[i];
  }
  ALL error[i] = pair.error[STAGES - 1] * slope[i];
  EACH for (int q = 0; q < STAGES - 1; q++)
    if (pair.error[q] != 0) ALL error[i] += pair.error[q] * of(q, i);
  ALL error[i] *= h;
  return value;
}

// One step of the stabilised family. All networks of a block go through the same loops: who has fewer stages of the
// first kind begins later, who has fewer of the last kind rests at the end.
SELDOM double stabilised_step(const Thread &thread, Shared &shared, int group, const Family &family, double h, double rho,
                              const double *y, const double *f, double *next, double *slope, double *error,
                              int64_t *evaluations) {
  int row = 0;
  for (int low = 0, high = family.rows; low < high;) {  // the first row that is long enough
    const int middle = (low + high) / 2;
    if (family.interval[middle] < h * rho) low = middle + 1;
    else high = middle;
    row = low;
  }
  row = min(row, family.rows - 1);
  const int stages = int(family.stages[row]), first = int(family.first[row]), second = int(family.second[row]);
  const int64_t offset = family.offset[row];
  const double *mixing = family.mixing + 4 * row;
  *evaluations = stages + 2;
  int early = second, late = stages - second;
  if (GROUPS > 1) {
    if (thread.on && thread.lane == 0) shared.take[group] = early, shared.due[group] = late;
    SYNC();
    for (int other = 0; other < GROUPS; other++) early = max(early, shared.take[other]), late = max(late, shared.due[other]);
    SYNC();
  }
  double old[OWN], now[OWN], kept[OWN], kept_slope[OWN], sum[OWN], here[OWN], point[OWN], mixed[2][OWN];
  ALL old[i] = now[i] = kept[i] = kept_slope[i] = sum[i] = error[i] = 0, here[i] = f[i];

  // Stage `number` from the two before it; what is no stage of this network changes nothing that counts.
  auto update = [&](int number, bool forced) {
    const bool inside = number >= 1 && number <= stages;
    const double *w = family.weights + 6 * (offset + (inside ? number : 1));
    const double on = inside ? 1.0 : 0.0;
    const double momentum = on * w[0], go = on * w[1] * h, weight = on * w[2], estimate = on * w[3];
    const double push0 = forced ? on * w[4] : 0.0, push1 = forced ? on * w[5] : 0.0;
    ALL {
      const double s = here[i] + mixed[0][i] * push0 + mixed[1][i] * push1;
      const double fresh = now[i] + momentum * (now[i] - old[i]) + go * s;
      old[i] = now[i], now[i] = fresh;
      sum[i] += weight * fresh, error[i] += estimate * fresh;
    }
  };
  auto field = [&](double *out) {
    ALL point[i] += y[i];
    slope_at(thread, point, out, false);
  };
  ALL mixed[0][i] = mixed[1][i] = 0;
  update(early > second ? 0 : 1, false);
  for (int j = 2; j <= early; j++) {
    ALL point[i] = now[i];
    field(here);
    const int number = j - (early - second);
    if (number == 1) ALL here[i] = f[i];
    if (number - 1 == first) ALL kept[i] = now[i], kept_slope[i] = here[i];
    update(number, false);
  }
  // Two evaluations whose linear parts cancel, at combinations of the stages `first` and `second`.
  ALL point[i] = now[i];
  field(here);
  for (int q = 0; q < 2; q++) {
    ALL point[i] = mixing[2 * q] * kept[i] + mixing[2 * q + 1] * now[i];
    field(mixed[q]);
    ALL mixed[q][i] += -f[i] - mixing[2 * q] * (kept_slope[i] - f[i]) - mixing[2 * q + 1] * (here[i] - f[i]);
  }
  update(second + 1, true);
  for (int j = 2; j <= late; j++) {
    ALL point[i] = now[i];
    field(here);
    update(second + j, true);
  }
  ALL next[i] = y[i] + sum[i];
  return slope_at(thread, next, slope, true);
}

// --- The whole

inline void run(const Spec &spec, const Launch &launch, Shared &shared) {
  const int group = GROUPS > 1 ? min(int(threadIdx.x) / GROUP, GROUPS - 1) : 0;
  const int lane = int(threadIdx.x) - group * GROUP;
  Thread thread;
  thread.s = &shared.networks[group], thread.lane = lane, thread.on = lane < GROUP;
  const bool leads = lane == 0;
  const Judge judge(&spec, DEPTH, WEIGHTS);
  Control &c = shared.control[group];
  Trial &trial = shared.trial[group];
  double y[OWN], f[OWN], next[OWN], slope[OWN], error[OWN];
  ALL y[i] = f[i] = next[i] = slope[i] = error[i] = 0;
  if (leads) shared.who[group] = WANTS, shared.fresh[group] = 0;
  if (threadIdx.x == 0) shared.over = 0;
  thread.target = spec.target, thread.mask = spec.mask, thread.sxx = spec.sxx, thread.solution = spec.solution;
  thread.offset = thread.l2 = 0;
  const uint64_t began = nanoseconds();
  SYNC();

  auto any = [&](auto of) {
    bool found = false;
    for (int other = 0; other < GROUPS; other++) found = found || (shared.who[other] >= 0 && of(other));
    return found;
  };
  auto load = [&](const double *from, double *to) {
    upward<1, DEPTH>([&](auto l) {
      constexpr int L = decltype(l)::at;
      thread.mine<L>([&](int i, int r, int q) { read(from + place(L), width(L - 1), r, q, to + i); });
    });
  };
  auto store = [&](double *to, const double *from) {
    upward<1, DEPTH>([&](auto l) {
      constexpr int L = decltype(l)::at;
      thread.mine<L>([&](int i, int r, int q) { write(to + place(L), width(L - 1), r, q, from + i); });
    });
  };
  auto record = [&](int64_t who, const double *state) {  // at the listed time before the next one
    const int64_t row = who * spec.listed + c.cursor - 1;
    if (leads) launch.losses[row] = c.loss, launch.slopes[row] = c.before;
    if (spec.keeps) store(launch.states + row * WEIGHTS, state);
  };
  // Squared norms by layer of two vectors, and three sums.
  auto norms = [&](const double *a, const double *b, double x, double z, double t, double *sums) {
    upward<1, DEPTH>([&](auto l) {
      constexpr int L = decltype(l)::at;
      double p = 0, q = 0;
      EACH for (int i = own(L); i < own(L + 1); i++) p += a[i] * a[i], q += b[i] * b[i];
      sums[L - 1] = p, sums[DEPTH + L - 1] = q;
    });
    sums[2 * DEPTH] = x, sums[2 * DEPTH + 1] = z, sums[2 * DEPTH + 2] = t;
    thread.total<SUMS>(sums);
  };

  for (;;) {
    // Who has no network takes the next one.
    if (leads && thread.on && shared.who[group] == WANTS) {
      int64_t next_one = atomicAdd(launch.queue, 1);
      while (next_one < spec.members && spec.whole[next_one * WHOLES + WHOLE_RESULT] != RUNNING)
        next_one = atomicAdd(launch.queue, 1);
      shared.who[group] = next_one < spec.members ? int(next_one) : NONE;
      if (next_one < spec.members) shared.fresh[group] = launch.saved[next_one].evaluations ? BACK : NEW;
    }
    if (threadIdx.x == 0) shared.over = nanoseconds() - began > launch.slice;
    SYNC();
    if (!any([](int) { return true; })) return;
    const int64_t who = shared.who[group];
    const bool active = who >= 0, fresh = active && shared.fresh[group] == NEW;
    if (active && shared.fresh[group] != KNOWN) {
      thread.target = spec.target + who * spec.target_step;
      if (spec.mask) thread.mask = spec.mask + who * spec.mask_step;
      if (spec.sxx) thread.sxx = spec.sxx + who * spec.sxx_step;
      if (spec.solution) thread.solution = spec.solution + who * spec.solution_step;
      thread.offset = spec.offset[who * spec.offset_step], thread.l2 = spec.l2[who * spec.l2_step];
      load(spec.y + who * WEIGHTS, y);
      if (!fresh) {
        load(launch.f + who * WEIGHTS, f);
        if (leads) c = launch.saved[who];
      }
    }
    if (any([&](int other) { return shared.fresh[other] == NEW; })) {
      // The first slope, and the derivative along it.
      const double part = seldom(thread, y, slope, true);
      if (fresh) ALL f[i] = slope[i];
      double sums[SUMS], own_part[SUMS];
      double speed = 0, bend = 0;
      ALL speed += slope[i] * slope[i];
      norms(y, y, speed, part, 0, sums);
      double square = 0;
      EACH for (int l = 0; l < DEPTH; l++) square += sums[l];
      speed = sqrt(sums[2 * DEPTH]);
      derivative(thread, y, slope, sqrt(square), speed, next);
      ALL bend += next[i] * next[i];
      own_part[0] = bend;
      thread.total<1>(own_part);
      if (fresh && leads) {
        c = Control{};
        c.member = who;
        judge.tolerate(c);
        c.t = spec.real[who * REALS + REAL_T];
        c.cursor = spec.first;
        for (int l = 0; l < DEPTH; l++) c.layers[l] = sums[l];
        judge.open(c, speed, sqrt(own_part[0]), sqrt(square), thread.loss(sums[2 * DEPTH + 1], square));
        if (spec.resumed) {
          const double *real = spec.real + who * REALS;
          const int64_t *whole = spec.whole + who * WHOLES;
          c.h = real[REAL_H], c.rho = real[REAL_RHO], c.error = real[REAL_ERROR];
          c.age = int(whole[WHOLE_AGE]), c.stiff = int(whole[WHOLE_STIFF]), c.strikes = int(whole[WHOLE_STRIKES]);
          c.accepted = whole[WHOLE_ACCEPTED], c.rejected = whole[WHOLE_REJECTED];
          c.stabilised = whole[WHOLE_STABILISED], c.evaluations = whole[WHOLE_EVALUATIONS];
        }
        if (spec.opens && spec.listed > 0) c.cursor++;  // the first listed time is that of the start
      }
      SYNC();
      if (fresh) {
        if (!spec.resumed) {
          ALL next[i] = slope[i] / max(speed, judge.tiny);
          store(spec.direction + who * WEIGHTS, next);
        }
        if (spec.opens && spec.listed > 0) record(who, y);
      }
    }
    SYNC();
    if (active && leads) shared.fresh[group] = KNOWN;

    // Who has come to an end, or the block to that of its time, leaves.
    const bool leaves = active && (shared.over || launch.begins || c.result != RUNNING);
    if (leaves) {
      store(spec.y + who * WEIGHTS, y);
      if (c.result == RUNNING) store(launch.f + who * WEIGHTS, f);
      if (leads) {
        double *real = spec.real + who * REALS;
        int64_t *whole = spec.whole + who * WHOLES;
        real[REAL_T] = c.t, real[REAL_H] = c.h, real[REAL_RHO] = c.rho, real[REAL_ERROR] = c.error;
        real[REAL_LOSS] = c.loss, real[REAL_SLOPE] = c.before;
        whole[WHOLE_AGE] = c.age, whole[WHOLE_STIFF] = c.stiff, whole[WHOLE_STRIKES] = c.strikes;
        whole[WHOLE_ACCEPTED] = c.accepted, whole[WHOLE_REJECTED] = c.rejected;
        whole[WHOLE_STABILISED] = c.stabilised, whole[WHOLE_EVALUATIONS] = c.evaluations;
        whole[WHOLE_RULE] = c.rule, whole[WHOLE_RESULT] = c.result;
        launch.saved[who] = c;
      }
    }
    SYNC();
    if (leaves && leads) shared.who[group] = shared.over ? NONE : WANTS;
    const bool over = shared.over;
    SYNC();
    if (over) return;
    const bool runs = active && !leaves;
    if (GROUPS == 1 && !runs) continue;

    // The spectral radius, by power iteration from the last direction.
    auto aged = [&](int other) { return shared.control[other].age >= spec.law.refresh; };
    if (any(aged)) {
      const bool due = runs && aged(group);
      double v[OWN], bound = 0, sums[2];
      ALL v[i] = 0;
      if (due) load(spec.direction + who * WEIGHTS, v);
      for (int iteration = 0; iteration < 3; iteration++) {
        derivative(thread, y, v, c.size, 1, next);
        sums[0] = sums[1] = 0;
        ALL sums[0] += v[i] * next[i], sums[1] += next[i] * next[i];
        thread.total<2>(sums);
        const double quotient = sums[0], size = sqrt(sums[1]);
        sums[0] = 0;
        ALL sums[0] += (next[i] - quotient * v[i]) * (next[i] - quotient * v[i]);
        thread.total<1>(sums);
        bound = fabs(quotient) + sqrt(sums[0]);
        if (size > 0) ALL v[i] = next[i] / size;
      }
      if (due) store(spec.direction + who * WEIGHTS, v);
      SYNC();
      if (due && leads) c.rho = spec.law.margin * bound, c.age = 0, c.evaluations += 7;
      SYNC();
    }

    if (runs && leads) trial = judge.plan(c);
    SYNC();
    EACH for (int mode = EXPLICIT; mode <= STABILISED; mode++) {
      auto wants = [&](int other) { return shared.trial[other].mode == mode; };
      if (!any(wants)) continue;
      const bool moves = runs && wants(group);
      const double h = moves ? trial.h : 0;
      int64_t evaluations = STAGES - 1;
      double part, sums[SUMS];
      if (mode == EXPLICIT) {
        part = explicit_step(thread, spec.pair, h, y, f, next, slope, error);
      } else {
        double here[OWN], rate[OWN], then[OWN], turned[OWN], off[OWN];
        ALL here[i] = y[i], rate[i] = f[i];
        part = stabilised_step(thread, shared, group, spec.family, h, moves ? c.rho : 0, here, rate, then, turned, off, &evaluations);
        ALL next[i] = then[i], slope[i] = turned[i], error[i] = off[i];
      }
      double speed = 0, along = 0;
      ALL speed += slope[i] * slope[i], along += (f[i] + slope[i]) * (next[i] - y[i]);
      norms(next, error, speed, along, part, sums);
      if (moves && leads) {
        Measured m;
        double square = 0;
        for (int l = 0; l < DEPTH; l++) m.layers[l] = sums[l], m.errors[l] = sums[DEPTH + l], square += sums[l];
        m.slope = sums[2 * DEPTH], m.along = sums[2 * DEPTH + 1], m.value = thread.loss(sums[2 * DEPTH + 2], square);
        m.evaluations = evaluations;
        bool due;
        shared.take[group] = judge.judge(c, trial, m, due);
        shared.due[group] = due;
      }
      SYNC();
      if (moves && shared.take[group]) {
        ALL y[i] = next[i], f[i] = slope[i];
        if (shared.due[group]) record(who, y);
      }
      SYNC();
    }
    SYNC();  // all have seen who wants what, before networks change
  }
}

}  // namespace engine

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(engine::BLOCK, CROWD) flows(const __grid_constant__ Spec spec,
                                                                  const __grid_constant__ engine::Launch launch) {
  extern __shared__ double2 pool[];
  engine::run(spec, launch, *reinterpret_cast<engine::Shared *>(pool));
}
// What the host must know of this shape.
extern "C" __device__ const int sizes[] = {int(sizeof(engine::Shared)), engine::BLOCK, int(sizeof(engine::Control)), int(sizeof(Spec)), int(sizeof(engine::Launch))};
#endif
