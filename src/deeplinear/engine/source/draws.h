// Random terms of a loss, those that `jax.random` draws: Threefry-2x32, in its partitionable form.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace engine {

struct Key {
  uint32_t a, b;
};

// The cipher on many counters, which are replaced; the loops inside are for vector instructions.
constexpr int BLOCK = 16;
inline void threefry(Key key, uint32_t *x, uint32_t *y) {
  const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
  static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  for (int i = 0; i < BLOCK; i++) x[i] += keys[0], y[i] += keys[1];
  for (int round = 0; round < 5; round++) {
    for (int turn : turns[round % 2])
      for (int i = 0; i < BLOCK; i++) {
        x[i] += y[i];
        y[i] = ((y[i] << turn) | (y[i] >> (32 - turn))) ^ x[i];
      }
    const uint32_t one = keys[(round + 1) % 3], other = keys[(round + 2) % 3] + uint32_t(round) + 1;
    for (int i = 0; i < BLOCK; i++) x[i] += one, y[i] += other;
  }
}

// Numbers `at(0)`, ..., `at(count - 1)` of the stream of a key, handed to `take(i, high, low)`.
template <class At, class Take> inline void stream(Key key, int64_t count, At at, Take take) {
  uint32_t x[BLOCK], y[BLOCK];
  for (int64_t from = 0; from < count; from += BLOCK) {
    const int some = int(std::min<int64_t>(BLOCK, count - from));
    for (int i = 0; i < BLOCK; i++) {
      const uint64_t counter = uint64_t(at(from + std::min(i, some - 1)));
      x[i] = uint32_t(counter >> 32), y[i] = uint32_t(counter);
    }
    threefry(key, x, y);
    for (int i = 0; i < some; i++) take(from + i, x[i], y[i]);
  }
}

inline Key number(Key key, uint64_t counter) {
  Key found{};
  stream(key, 1, [&](int64_t) { return counter; }, [&](int64_t, uint32_t x, uint32_t y) { found = {x, y}; });
  return found;
}

inline Key fold_in(Key key, uint64_t data) { return number(key, uint32_t(data)); }

inline uint64_t whole(Key key, uint64_t counter) {
  const Key found = number(key, counter);
  return uint64_t(found.a) << 32 | found.b;
}

// One number below `span`.
inline int64_t below(Key key, uint64_t span) {
  const uint64_t high = whole(number(key, 0), 0), low = whole(number(key, 1), 0);
  uint64_t factor = (uint64_t(1) << 32) % span;
  factor = factor * factor % span;
  return int64_t((high % span * factor + low % span) % span);
}

// The first `batch` of a random order of `count` terms: sorted by random numbers, which may be alike, a few times over.
struct Draws {
  std::vector<uint64_t> scores;
  std::vector<int64_t> order, before, chosen;

  void some(Key key, int64_t count, int64_t batch) {
    chosen.resize(batch);
    if (batch == 1) {
      chosen[0] = below(key, uint64_t(count));
      return;
    }
    const int rounds = int(std::ceil(3 * std::log(double(std::max<int64_t>(1, count))) / std::log(4294967295.0)));
    order.resize(count), before.resize(count), scores.resize(count);
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int round = 0; round < rounds; round++) {
      const Key sub = number(key, 1);
      key = number(key, 0);
      stream(sub, count, [](int64_t i) { return i; }, [&](int64_t i, uint32_t x, uint32_t y) {
        scores[i] = uint64_t(x ^ y) << 32 | uint64_t(i);
      });
      const bool last = round + 1 == rounds;
      if (last)
        std::partial_sort(scores.begin(), scores.begin() + batch, scores.end());
      else
        std::sort(scores.begin(), scores.end());
      before.swap(order);
      for (int64_t i = 0; i < (last ? batch : count); i++) order[i] = before[scores[i] & 0xffffffffu];
    }
    std::copy(order.begin(), order.begin() + batch, chosen.begin());
  }

  // `batch` of the places that are seen: those of the highest scores, the first of those alike; all where they are few.
  void seen(Key key, const std::vector<int> &places, int64_t batch) {
    const int64_t count = int64_t(places.size());
    if (batch == 1) {
      chosen.assign(1, places[below(key, uint64_t(count))]);
      return;
    }
    chosen.assign(places.begin(), places.end());
    if (batch >= count) return;
    scores.resize(count), order.resize(count);
    stream(key, count, [&](int64_t i) { return places[i]; }, [&](int64_t i, uint32_t x, uint32_t y) {
      scores[i] = (uint64_t(x) << 32 | y) >> 12, order[i] = i;
    });
    std::nth_element(order.begin(), order.begin() + batch, order.end(), [&](int64_t i, int64_t j) {
      return scores[i] != scores[j] ? scores[i] > scores[j] : i < j;
    });
    for (int64_t i = 0; i < batch; i++) chosen[i] = places[order[i]];
    chosen.resize(batch);
  }
};

}  // namespace engine
