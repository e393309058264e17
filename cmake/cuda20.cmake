# CUDA as a language of this build, for sm_90a and in C++20.

# Emits -gencode arch=compute_90a,code=sm_90a. The plain -arch=sm_90a also runs an sm_90 pass, which
# refuses wgmma and setmaxnreg.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# CMake 3.25 does not know that nvcc takes -std=c++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
