// What all workers share: how Python drives them, and the records they write.
#pragma once
#include <cmath>
#include <vector>
#include "spec.h"

namespace engine {

struct AbstractWorker {
  virtual ~AbstractWorker() {}
  virtual int advance(Records *records, double seconds) = 0;
  virtual int end(Records *records, int result) = 0;
};

// What of members was recorded.
struct Journal {
  const Spec &spec;
  int n;
  std::vector<double> written;  // time of the last record of each member, NaN before the first

  static bool room(const Records &r, int64_t rows) { return r.filled + rows <= r.room; }

  void write(Records &r, int64_t member, double t, double loss, double slope, const double *state) {
    const int64_t row = r.filled++;
    r.member[row] = member, r.time[row] = t, r.loss[row] = loss, r.slope[row] = slope;
    if (spec.keeps)
      for (int i = 0; i < n; i++) r.states[row * n + i] = state[i];
    if (int64_t(written.size()) <= member) written.resize(member + 1, NAN);
    written[member] = t;
  }

  bool has(int64_t member, double t) const { return int64_t(written.size()) > member && written[member] == t; }
};

}  // namespace engine
