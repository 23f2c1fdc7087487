// The CPUs of a thread: which it may use, and moving it to some of them. tandem-probe compiles this, too, on machines
// without any library: the standard library only.
#pragma once

#include <vector>

namespace tandem {

/// CPUs of the calling thread's mask in ascending order; empty on machines with more than 1,024.
std::vector<int> usable_cpus();

/// The first usable CPU of each core: threads on two of them share no core. As many as usable_cpus() where the system
/// does not say which CPUs share one.
std::vector<int> usable_cores();

/// Moves the calling thread to these CPUs. False where the system refuses it: the thread stays where it is.
bool run_on(const std::vector<int>& cpus);

/// Moves the calling thread for a scope; threads that it starts meanwhile stay on these CPUs.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus) : before_(usable_cpus()), moved_(run_on(cpus)) {}
  ~OnCpus() {
    if (!before_.empty()) run_on(before_);
  }
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;
  bool moved() const { return moved_; }

 private:
  std::vector<int> before_;
  bool moved_;
};

}  // namespace tandem
