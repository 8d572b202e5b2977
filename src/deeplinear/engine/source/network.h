// A network and its loss: slope of the flow, loss, and products with the Jacobian of the flow.
#pragma once
#include <memory>
#include "deep.h"
#include "recurrent.h"

namespace engine {

template <class T> struct Network {
  int size;
  std::vector<int> begin;  // where each layer begins among the weights
  Loss<T> loss;
  std::unique_ptr<Deep<T>> deep;  // one of the two is there
  std::unique_ptr<Recurrent<T>> recurrent;

  Network(const Spec &spec, const Blas &blas)
      : size(0), loss(spec, blas, spec.form ? spec.widths[2] : spec.widths[spec.depth],
                      spec.form ? spec.widths[3] * spec.widths[0] : spec.widths[0]) {
    for (int l = 0; l < spec.depth; l++) begin.push_back(size), size += spec.areas[l];
    begin.push_back(size);
    if (spec.form)
      recurrent.reset(new Recurrent<T>(spec, blas, loss, begin));
    else
      deep.reset(new Deep<T>(spec, blas, loss, begin));
  }

  void take(int64_t member, int lane) { loss.take(member, lane); }

  bool shared() const { return loss.shared(); }

  // The slope f of the flow at y; returns the loss if it is wanted.
  T slope(const T *y, T *f, bool wanted) {
    const T value = deep ? deep->slope(y, f, wanted) : recurrent->slope(y, f, wanted);
    return value + loss.penalise(size, y, f);
  }

  // The slope at y, kept so that `jacobian` can follow; returns the loss.
  T linearize(const T *y, T *f) {
    const T value = deep ? deep->linearize(y, f) : recurrent->linearize(y, f);
    return value + loss.penalise(size, y, f);
  }

  // Derivative of the slope along v, where `linearize` was called.
  void jacobian(const T *y, const T *v, T *out) {
    deep ? deep->jacobian(y, v, out) : recurrent->jacobian(y, v, out);
    loss.penalise_along(size, v, out);
  }
};

}  // namespace engine
