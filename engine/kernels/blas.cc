#include "engine/kernels/blas.h"

#include <cstddef>
#include <dlfcn.h>
#include <fmt/core.h>
#include <sched.h>
#include <vector>

#include "engine/common/error.h"

namespace tandem {
namespace {

// Fortran's interface: 32-bit integers by address, lengths of the character arguments last.
using Eigen = void (*)(const char* job, const char* triangle, const int* n, double* a, const int* stride,
                       double* values, double* work, const int* work_size, int* integers, const int* integer_count,
                       int* info, std::size_t, std::size_t);
using Product = void (*)(const char* a_turned, const char* b_turned, const int* m, const int* n, const int* k,
                         const float* alpha, const float* a, const int* a_stride, const float* b, const int* b_stride,
                         const float* beta, float* c, const int* c_stride, std::size_t, std::size_t);

struct Library {
  Eigen eigen = nullptr;
  Product product = nullptr;
  std::string kernels, missing;  // one of them is empty
};

/// While it lives, the calling thread may use one CPU alone.
class OneCpu {
 public:
  OneCpu() {
    changed_ = sched_getaffinity(0, sizeof before_, &before_) == 0;
    const int here = sched_getcpu();
    if (!changed_ || here < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(here), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCpu() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

template <class Function>
Function function(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// The build with pthreads alone: Debian's serial one (0.3.21) hands one buffer to two threads that call it at once and
// returns wrong products, and one with OpenMP takes the number of threads from the calling thread. Which of Debian's
// builds has the first name is the system's choice.
Library load() {
  const OneCpu no_threads;  // it starts one for each further CPU of the thread that loads it
  Library it;
  for (const char* name : {"libopenblas.so.0", "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0"}) {
    void* const at = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (at == nullptr) continue;
    const auto build = function<int (*)()>(at, "openblas_get_parallel");
    const auto config = function<const char* (*)()>(at, "openblas_get_config");
    const auto core = function<const char* (*)()>(at, "openblas_get_corename");
    const auto set_threads = function<void (*)(int)>(at, "openblas_set_num_threads");
    it.eigen = function<Eigen>(at, "dsyevd_");
    it.product = function<Product>(at, "sgemm_");
    constexpr int kPthreads = 1;
    const std::string words = config == nullptr ? "" : config();       // "OpenBLAS 0.3.21 ..."
    const bool wide = words.find("USE64BITINT") != std::string::npos;  // integers of 64 bits under the same names
    if (build != nullptr && build() == kPthreads && !words.empty() && !wide && core != nullptr &&
        set_threads != nullptr && it.eigen != nullptr && it.product != nullptr) {
      set_threads(1);
      const std::size_t version = words.find(' ') + 1;
      it.kernels = words.substr(version, words.find(' ', version) - version) + " " + core();
      return it;
    }
    dlclose(at);
  }
  it.missing =
      "OpenBLAS's build with pthreads and integers of 32 bits could not be loaded. Install it (Debian and Ubuntu: "
      "libopenblas0-pthread) or put "
      "its folder into LD_LIBRARY_PATH.";
  return it;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

const Library& loaded_library() {
  check_blas();
  return library();
}

}  // namespace

const std::string& blas_kernels() {
  return library().kernels;
}

void check_blas() {
  if (!library().missing.empty()) throw InputError(library().missing);
}

void blas_symmetric_eigen(double* a, std::uint32_t n, double* values) {
  if (n == 0) return;
  const int size = static_cast<int>(n), work_size = 1 + 6 * size + 2 * size * size, integer_count = 3 + 5 * size;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<int> integers(static_cast<std::size_t>(integer_count));
  int info = 0;
  loaded_library().eigen("V", "L", &size, a, &size, values, work.data(), &work_size, integers.data(), &integer_count,
                         &info, 1, 1);
  TANDEM_CHECK(info == 0, "dsyevd of a matrix of {} rows returned {}", n, info);
}

void blas_product(const float* x, const float* w, float* y, std::uint32_t n, std::uint32_t in, std::uint32_t out,
                  std::uint32_t stride) {
  const int rows = static_cast<int>(n), depth = static_cast<int>(in), columns = static_cast<int>(out);
  const int y_stride = static_cast<int>(stride);
  const float one = 1, zero = 0;
  // Fortran's matrices are column by column, so that it sees y^T = w x^T.
  loaded_library().product("T", "N", &columns, &rows, &depth, &one, w, &depth, x, &depth, &zero, y, &y_stride, 1, 1);
}

}  // namespace tandem
