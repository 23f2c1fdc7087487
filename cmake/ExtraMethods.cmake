# tandem_extra_methods(TARGET FOLDER ...): an object library with the methods of folders outside methods/ and the list of
# them that the registry asks for (methods/registry.h, extra_methods()). A folder "my-method" has my-method.h, which declares
# MethodInfo my_method_info() in namespace tandem, and any number of .cc files (docs/add_a_method.md). Warnings in these are no
# errors.
function(tandem_extra_methods target)
  set(sources "")
  set(includes "")
  set(infos "")
  set(functions "")
  # A second function of a name would go unnoticed: of two archives the linker takes what it meets first.
  file(STRINGS "${CMAKE_SOURCE_DIR}/methods/registry.cc" lines REGEX "_info\\(\\)")
  string(REGEX MATCHALL "[a-z0-9_]+_info" shipped "${lines}")
  foreach(folder IN LISTS ARGN)
    get_filename_component(folder "${folder}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    get_filename_component(name "${folder}" NAME)
    if(NOT name MATCHES "^[a-z][a-z0-9_-]*$")
      message(FATAL_ERROR "TANDEM_METHODS names '${folder}': a method's name, which is its folder's, is of small letters, digits, '-' "
        "and '_', and begins with a letter.")
    endif()
    if(NOT EXISTS "${folder}/${name}.h")
      message(FATAL_ERROR "TANDEM_METHODS names '${folder}', but there is no ${name}.h in it, which has to declare the method's "
        "MethodInfo function (docs/add_a_method.md).")
    endif()
    file(GLOB found CONFIGURE_DEPENDS "${folder}/*.cc")
    if(NOT found)
      message(FATAL_ERROR "TANDEM_METHODS names '${folder}', but there is no .cc file in it.")
    endif()
    string(REPLACE "-" "_" function "${name}_info")
    if(function IN_LIST shipped OR function IN_LIST functions)
      message(FATAL_ERROR "TANDEM_METHODS names '${folder}', but there is a method with a function ${function}() already: rename the folder.")
    endif()
    list(APPEND functions "${function}")
    list(APPEND sources ${found})
    set_property(SOURCE ${found} APPEND PROPERTY COMPILE_OPTIONS -Wno-error)
    string(APPEND includes "#include \"${folder}/${name}.h\"\n")
    list(APPEND infos "checked_method(\"${name}\", ${function}())")
  endforeach()
  list(JOIN infos ", " infos)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${target}.cc" @ONLY CONTENT
"// Made by cmake/ExtraMethods.cmake.
#include \"methods/registry.h\"
@includes@
namespace tandem {
std::vector<MethodInfo> extra_methods() {
  return {@infos@};
}
}  // namespace tandem
")
  # It includes the folders' headers.
  set_property(SOURCE "${CMAKE_CURRENT_BINARY_DIR}/${target}.cc" APPEND PROPERTY COMPILE_OPTIONS -Wno-error)
  add_library(${target} OBJECT "${CMAKE_CURRENT_BINARY_DIR}/${target}.cc" ${sources})
  target_link_libraries(${target} PRIVATE tandem_flags tandem_mechanisms)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
endfunction()
