// Functions that CPU and GPU code share.
#pragma once

#ifdef __CUDACC__
#define TANDEM_ON_BOTH __host__ __device__
#else
#define TANDEM_ON_BOTH
#endif
