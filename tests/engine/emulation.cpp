// The kernel for graphics cards on a processor: the threads of a block take turns, each until it waits for the others.
#include <ucontext.h>
#include <memory>
#include <vector>
#include "device.cu"

namespace engine {
static ucontext_t home, places[BLOCK];
static bool ended[BLOCK];
static int running;
static const Spec *spec_;
static const Launch *launch_;
static Shared *shared_;

uint64_t nanoseconds() {
  static uint64_t now = 0;
  return now++;
}

void meet() { swapcontext(&places[running], &home); }

static void body() {
  run(*spec_, *launch_, *shared_);
  ended[running] = true;
}
}  // namespace engine

extern "C" void emulate(const Spec *spec, const engine::Launch *launch, int blocks) {
  using namespace engine;
  std::vector<std::vector<char>> stacks(BLOCK, std::vector<char>(1 << 18));
  for (int block = 0; block < blocks; block++) {
    auto shared = std::make_unique<Shared>();
    spec_ = spec, launch_ = launch, shared_ = shared.get();
    for (int t = 0; t < BLOCK; t++) {
      ended[t] = false;
      getcontext(&places[t]);
      places[t].uc_stack.ss_sp = stacks[t].data(), places[t].uc_stack.ss_size = stacks[t].size();
      places[t].uc_link = &home;
      makecontext(&places[t], body, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (int t = 0; t < BLOCK; t++)
        if (!ended[t]) {
          running = t, threadIdx.x = unsigned(t), any = true;
          swapcontext(&home, &places[t]);
        }
    }
  }
}

extern "C" int sizes(int which) {
  const int found[] = {int(sizeof(Spec)), int(sizeof(engine::Launch)), int(sizeof(engine::Control)), int(sizeof(engine::Shared))};
  return found[which];
}
