// A network with its loss and penalty: slope of the flow, loss, and products with the Jacobian of the flow.
#pragma once
#include <memory>
#include "losses.h"
#include "models.h"
#include "recurrent.h"

namespace engine {

template <class T> struct Network {
  const Spec &spec;
  std::unique_ptr<Model<T>> model;
  Loss<T> loss;
  const std::vector<int> &begin;  // where each array begins among the weights
  int layers, size;
  const T *product = nullptr;  // at the last weights
  T l2;
  bool penalised;

  Network(const Spec &s, const Blas &b)
      : spec(s), model(s.form ? (Model<T> *)new Recurrent<T>(s, b) : (Model<T> *)new Layers<T>(s, b)),
        loss(s, b, model->rows, model->columns), begin(model->begin), layers(int(begin.size()) - 1), size(begin.back()),
        l2{}, penalised(false) {}

  // Takes the numbers of a member's problem into a lane, or into all of them.
  void take(int64_t member, int lane) {
    loss.take(member, lane);
    const double penalty = spec.l2[member * spec.l2_step];
    lane < 0 ? (void)(l2 = all<T>(penalty)) : put(l2, lane, penalty);
    penalised = penalised || penalty != 0;
  }

  bool shared() const { return loss.shared() && !spec.l2_step; }

  const T *forward(const T *y) { return product = model->forward(y); }

  // The slope f of the flow at y; returns the loss if it is wanted.
  T slope(const T *y, T *f, bool wanted) {
    forward(y);
    T value = loss.pull(product, model->cotangent(), wanted);
    model->backward(y, f);
    return value + shrink(y, f);
  }

  // The slope at y, kept so that `jacobian` can follow; returns the loss.
  T linearize(const T *y, T *f) {
    T value = loss.pull(forward(y), model->kept_cotangent(), true);
    model->kept_backward(y, f);
    return value + shrink(y, f);
  }

  // Derivative of the slope along v, where `linearize` was called.
  void jacobian(const T *y, const T *v, T *out) {
    loss.bend(model->tangent(y, v), model->cotangent());
    model->backward_tangent(y, v, out);
    if (penalised)
      for (int i = 0; i < size; i++) out[i] -= l2 * v[i];
  }

  // The part of the penalty.
  T shrink(const T *y, T *f) const {
    T sum{};
    if (!penalised) return sum;
    for (int i = 0; i < size; i++) f[i] -= l2 * y[i], sum += y[i] * y[i];
    return 0.5 * l2 * sum;
  }
};

}  // namespace engine
