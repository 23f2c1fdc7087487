// What other processes take of the machine's CPUs while something is measured.
#pragma once

#include <chrono>
#include <string>

namespace tandem {

/// Seconds of CPU time that all processes have used since the start, those that a hypervisor took included, by the text
/// of /proc/stat; below 0 where it does not say. `cpus`: of the machine.
double busy_seconds(const std::string& proc_stat, unsigned& cpus);

/// Watches from its construction on. /proc/stat counts in hundredths of a second: a few tenths are the least to judge.
class CpuContention {
 public:
  CpuContention();
  /// CPUs that others have kept busy since, in the mean; 0 where the machine does not say.
  double cpus() const;
  /// Empty, or a sentence where that is more than a tenth of the machine's CPUs.
  std::string disturbance() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  double busy_ = -1, own_ = 0;  // seconds
};

}  // namespace tandem
