// A linear recurrent network, read through the first entries h_j = C A^j B of its impulse response: slope of the flow,
// loss, and products with the Jacobian of the flow. Its weights are B, then A in one of five forms, then C.
#pragma once
#include "loss.h"

namespace engine {

enum { FORM_DEEP, FORM_GENERAL, FORM_SYMMETRIC, FORM_UPPER, FORM_DIAGONAL, FORM_TIED };

template <class T> struct Recurrent {
  const Blas &blas;
  Loss<T> &loss;
  int form, d, inputs, outputs, length;
  const std::vector<int> &begin;
  Array<T> matrix, along;      // the transition matrix, and its derivative
  Array<T> right, left, back;  // A^k B; (A^T)^k C^T; sum over j >= k of (A^T)^(j-k) C^T g_j
  Array<T> turned, moved, bent;  // their derivatives
  Array<T> response, g, dg;    // the response as the loss has it; minus the derivative of the loss, entry by entry
  Array<T> entry, square;
  Array<T> weight, value, tilt, arch;  // diagonal forms: c_s b_s, and the polynomial sum g_k a^k with two derivatives
  Array<double> room;

  Recurrent(const Spec &spec, const Blas &b, Loss<T> &l, const std::vector<int> &places)
      : blas(b), loss(l), form(spec.form), d(spec.widths[1]), inputs(spec.widths[0]), outputs(spec.widths[2]),
        length(spec.widths[3]), begin(places) {
    for (auto *array : {&response, &g, &dg}) array->resize(size_t(length) * inputs * outputs);
    entry.resize(inputs * outputs);
    if (diagonal()) {
      for (auto *array : {&weight, &value, &tilt, &arch}) array->resize(size_t(d) * inputs * outputs);
      moved.resize(weight.size()), turned.resize(weight.size());
      return;
    }
    for (auto *array : {&matrix, &along, &square}) array->resize(size_t(d) * d);
    for (auto *array : {&right, &turned, &back, &bent}) array->resize(size_t(length) * d * inputs);
    for (auto *array : {&left, &moved}) array->resize(size_t(length) * d * outputs);
  }

  bool diagonal() const { return form >= FORM_DIAGONAL; }

  // An entry of C, given the weights; tied networks have C = B^T.
  const T &output(const T *y, int o, int s) const {
    return form == FORM_TIED ? y[s * inputs + o] : y[begin[2] + o * d + s];
  }

  // The transition matrix that weights stand for.
  const T *transition(const T *y, Array<T> &to) const {
    const T *inner = y + begin[1];
    if (form == FORM_GENERAL) return inner;
    for (int i = 0, place = 0; i < d; i++)
      for (int j = form == FORM_UPPER ? i : 0; j < d; j++, place++) {
        if (form == FORM_UPPER)
          to[i * d + j] = to[j * d + i] = inner[place];
        else
          to[i * d + j] = 0.5 * (inner[i * d + j] + inner[j * d + i]);
      }
    return to.data();
  }

  // What a derivative in a free transition matrix, in `square`, is in the weights.
  void in_form(T *inner) const {
    for (int i = 0, place = 0; i < d; i++)
      for (int j = form == FORM_UPPER ? i : 0; j < d; j++, place++) {
        const T x = square[i * d + j], mirrored = square[j * d + i];
        inner[place] = form == FORM_GENERAL ? x : form == FORM_SYMMETRIC ? 0.5 * (x + mirrored) : i == j ? x : x + mirrored;
      }
  }

  // From the order of the loss, (output, time, input), to (time, output, input), and back.
  void by_time(const T *from, T *to) const {
    for (int o = 0; o < outputs; o++)
      for (int k = 0; k < length; k++)
        for (int i = 0; i < inputs; i++) to[(k * outputs + o) * inputs + i] = from[(o * length + k) * inputs + i];
  }
  void by_output(int k, const T *from, T *to) const {
    for (int o = 0; o < outputs; o++)
      for (int i = 0; i < inputs; i++) to[(o * length + k) * inputs + i] = from[o * inputs + i];
  }

  // --- Free, symmetric and triangular transition matrices

  void full_forward(const T *y) {
    const T *a = transition(y, matrix), *c = y + begin[2];
    for (int i = 0; i < d * inputs; i++) right[i] = y[i];
    for (int s = 0; s < d; s++)
      for (int o = 0; o < outputs; o++) left[s * outputs + o] = c[o * d + s];
    for (int k = 0; k < length; k++) {
      T *block = &right[size_t(k) * d * inputs];
      if (k) {
        multiply(blas, room, d, d, inputs, a, d, 1, block - d * inputs, inputs, 1, block);
        T *other = &left[size_t(k) * d * outputs];
        multiply(blas, room, d, d, outputs, a, 1, d, other - d * outputs, outputs, 1, other);
      }
      multiply(blas, room, outputs, d, inputs, c, d, 1, block, inputs, 1, entry.data());
      by_output(k, entry.data(), response.data());
    }
  }

  // Sum over time of a block (states x outputs) times an entry of `with`: (states x inputs).
  void to_input(const Array<T> &blocks, const Array<T> &with, T *to, bool add) {
    for (int k = 0; k < length; k++)
      multiply(blas, room, d, outputs, inputs, &blocks[size_t(k) * d * outputs], outputs, 1,
               &with[size_t(k) * outputs * inputs], inputs, 1, to, add || k > 0);
  }

  // Sum over time of an entry of `with` times a transposed block (states x inputs): (outputs x states).
  void to_output(const Array<T> &blocks, const Array<T> &with, T *to, bool add) {
    for (int k = 0; k < length; k++)
      multiply(blas, room, outputs, inputs, d, &with[size_t(k) * outputs * inputs], inputs, 1,
               &blocks[size_t(k) * d * inputs], 1, inputs, to, add || k > 0);
  }

  void full_slope(const T *y, T *f) {
    const T *a = transition(y, matrix), *c = y + begin[2];
    to_input(left, g, f, false);
    to_output(right, g, f + begin[2], false);
    for (int i = 0; i < d * d; i++) square[i] = T{};
    for (int k = length - 1; k >= 0; k--) {
      T *here = &back[size_t(k) * d * inputs];
      multiply(blas, room, d, outputs, inputs, c, 1, d, &g[size_t(k) * outputs * inputs], inputs, 1, here);
      if (k + 1 < length) multiply(blas, room, d, d, inputs, a, 1, d, here + d * inputs, inputs, 1, here, true);
      if (k) multiply(blas, room, d, inputs, d, here, inputs, 1, &right[size_t(k - 1) * d * inputs], 1, inputs, square.data(), true);
    }
    in_form(f + begin[1]);
  }

  void full_jacobian(const T *y, const T *v, T *out) {
    const T *a = transition(y, matrix), *c = y + begin[2], *da = transition(v, along), *dc = v + begin[2];
    for (int i = 0; i < d * inputs; i++) turned[i] = v[i];
    for (int s = 0; s < d; s++)
      for (int o = 0; o < outputs; o++) moved[s * outputs + o] = dc[o * d + s];
    for (int k = 0; k < length; k++) {
      const T *block = &right[size_t(k) * d * inputs];
      T *change = &turned[size_t(k) * d * inputs];
      if (k) {
        multiply(blas, room, d, d, inputs, da, d, 1, block - d * inputs, inputs, 1, change);
        multiply(blas, room, d, d, inputs, a, d, 1, change - d * inputs, inputs, 1, change, true);
        T *other = &moved[size_t(k) * d * outputs];
        multiply(blas, room, d, d, outputs, da, 1, d, &left[size_t(k - 1) * d * outputs], outputs, 1, other);
        multiply(blas, room, d, d, outputs, a, 1, d, other - d * outputs, outputs, 1, other, true);
      }
      multiply(blas, room, outputs, d, inputs, dc, d, 1, block, inputs, 1, entry.data());
      multiply(blas, room, outputs, d, inputs, c, d, 1, change, inputs, 1, entry.data(), true);
      by_output(k, entry.data(), response.data());
    }
    bend();
    to_input(moved, g, out, false);
    to_input(left, dg, out, true);
    to_output(right, dg, out + begin[2], false);
    to_output(turned, g, out + begin[2], true);
    for (int i = 0; i < d * d; i++) square[i] = T{};
    for (int k = length - 1; k >= 0; k--) {
      const T *kept = &back[size_t(k) * d * inputs];
      T *here = &bent[size_t(k) * d * inputs];
      multiply(blas, room, d, outputs, inputs, dc, 1, d, &g[size_t(k) * outputs * inputs], inputs, 1, here);
      multiply(blas, room, d, outputs, inputs, c, 1, d, &dg[size_t(k) * outputs * inputs], inputs, 1, here, true);
      if (k + 1 < length) {
        multiply(blas, room, d, d, inputs, da, 1, d, kept + d * inputs, inputs, 1, here, true);
        multiply(blas, room, d, d, inputs, a, 1, d, here + d * inputs, inputs, 1, here, true);
      }
      if (k) {
        multiply(blas, room, d, inputs, d, here, inputs, 1, &right[size_t(k - 1) * d * inputs], 1, inputs, square.data(), true);
        multiply(blas, room, d, inputs, d, kept, inputs, 1, &turned[size_t(k - 1) * d * inputs], 1, inputs, square.data(), true);
      }
    }
    in_form(out + begin[1]);
  }

  // --- Diagonal transition matrices

  void diagonal_forward(const T *y) {
    const T *a = y + begin[1];
    for (int s = 0; s < d; s++)
      for (int o = 0; o < outputs; o++)
        for (int i = 0; i < inputs; i++) weight[(s * outputs + o) * inputs + i] = output(y, o, s) * y[s * inputs + i];
    for (auto &x : response) x = T{};
    for (int s = 0; s < d; s++) {
      T power = all<T>(1.0);
      for (int k = 0; k < length; k++, power *= a[s])
        for (int o = 0; o < outputs; o++)
          for (int i = 0; i < inputs; i++)
            response[(o * length + k) * inputs + i] += power * weight[(s * outputs + o) * inputs + i];
    }
  }

  void diagonal_slope(const T *y, T *f) {
    const T *a = y + begin[1];
    const int entries = outputs * inputs;
    for (int s = 0; s < d; s++)
      for (int e = 0; e < entries; e++) {
        T p{}, q{}, r{};  // Horner's rule for the value and two derivatives
        for (int k = length - 1; k >= 0; k--)
          r = r * a[s] + 2.0 * q, q = q * a[s] + p, p = p * a[s] + g[k * entries + e];
        value[s * entries + e] = p, tilt[s * entries + e] = q, arch[s * entries + e] = r;
      }
    gather(y, value, tilt, f);
  }

  // Slopes of B, A and C from the polynomials of all states and their derivatives.
  void gather(const T *y, const Array<T> &sums, const Array<T> &derivatives, T *f) {
    for (int i = 0; i < begin.back(); i++) f[i] = T{};
    for (int s = 0; s < d; s++) {
      T inner{};
      for (int o = 0; o < outputs; o++)
        for (int i = 0; i < inputs; i++) {
          const int e = (s * outputs + o) * inputs + i;
          inner += output(y, o, s) * derivatives[e] * y[s * inputs + i];
        }
      f[begin[1] + s] += inner;
      for (int i = 0; i < inputs; i++) {
        T sum{};
        for (int o = 0; o < outputs; o++) sum += output(y, o, s) * sums[(s * outputs + o) * inputs + i];
        f[s * inputs + i] += sum;
      }
      for (int o = 0; o < outputs; o++) {
        T sum{};
        for (int i = 0; i < inputs; i++) sum += sums[(s * outputs + o) * inputs + i] * y[s * inputs + i];
        (form == FORM_TIED ? f[s * inputs + o] : f[begin[2] + o * d + s]) += sum;
      }
    }
  }

  void diagonal_jacobian(const T *y, const T *v, T *out) {
    const T *a = y + begin[1], *da = v + begin[1];
    const int entries = outputs * inputs;
    for (auto &x : response) x = T{};
    for (int s = 0; s < d; s++) {
      T power = all<T>(1.0), change{};
      for (int k = 0; k < length; k++) {
        for (int o = 0; o < outputs; o++)
          for (int i = 0; i < inputs; i++)
            response[(o * length + k) * inputs + i] +=
                power * (output(v, o, s) * y[s * inputs + i] + output(y, o, s) * v[s * inputs + i]) +
                change * weight[(s * outputs + o) * inputs + i];
        change = change * a[s] + power * da[s];
        power *= a[s];
      }
    }
    bend();
    Array<T> &sums = moved, &derivatives = turned;
    for (int s = 0; s < d; s++)
      for (int e = 0; e < entries; e++) {
        T p{}, q{};
        for (int k = length - 1; k >= 0; k--) q = q * a[s] + p, p = p * a[s] + dg[k * entries + e];
        const int place = s * entries + e;
        sums[place] = p + tilt[place] * da[s], derivatives[place] = q + arch[place] * da[s];
      }
    gather(y, sums, derivatives, out);
    // The sums stay and the maps move: of B and C by themselves, and of A, a product with both, one after the other.
    for (int s = 0; s < d; s++) {
      T inner{};
      for (int o = 0; o < outputs; o++)
        for (int i = 0; i < inputs; i++) {
          const int e = (s * outputs + o) * inputs + i;
          inner += (output(v, o, s) * y[s * inputs + i] + output(y, o, s) * v[s * inputs + i]) * tilt[e];
          out[s * inputs + i] += output(v, o, s) * value[e];
          (form == FORM_TIED ? out[s * inputs + o] : out[begin[2] + o * d + s]) += value[e] * v[s * inputs + i];
        }
      out[begin[1] + s] += inner;
    }
  }

  // --- What the flow calls

  // Derivative of the derivative of the loss along `response`.
  void bend() {
    loss.bend(response.data(), dg.data());
    by_time(dg.data(), response.data());
    dg.swap(response);
  }

  T slope(const T *y, T *f, bool wanted) {
    diagonal() ? diagonal_forward(y) : full_forward(y);
    T value = loss.pull(response.data(), dg.data(), wanted);
    by_time(dg.data(), g.data());
    diagonal() ? diagonal_slope(y, f) : full_slope(y, f);
    return value;
  }

  T linearize(const T *y, T *f) { return slope(y, f, true); }

  void jacobian(const T *y, const T *v, T *out) {
    diagonal() ? diagonal_jacobian(y, v, out) : full_jacobian(y, v, out);
  }
};

}  // namespace engine
