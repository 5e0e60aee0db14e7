#include "shim/observe/python_stats_call.h"

#include <atomic>
#include <cstring>

#include "shim/observe/python_memory.h"
#include "shim/stacks/python_interpreter.h"

namespace whyrss::shim {
namespace {

using Method = void* (*)(void* self, void* arguments);
struct MethodDef {  // PyMethodDef
  const char* name;
  Method function;
  int flags;
  const char* doc;
};

// PyCFunctionObject begins with PyObject_HEAD and its m_ml.
constexpr std::size_t kFunctionMethod = 16;

using SysObject = void* (*)(const char* name);  // PySys_GetObject: a borrowed reference
using IsInitialized = int (*)();
constinit SysObject g_sys_object = nullptr;
constinit IsInitialized g_is_initialized = nullptr;
constinit const std::byte* g_function_type = nullptr;
constinit std::atomic<bool> g_is_wanted{false};
constinit MethodDef g_method{};
constinit Method g_real_function = nullptr;

void* print_stats(void* self, void* arguments) {
  const bool aside = set_object_wrappers_aside();
  void* result = g_real_function(self, arguments);
  if (aside) set_object_wrappers_again();
  return result;
}

}  // namespace

void find_stats_call(const Library& library) noexcept {
  g_function_type = library.address("PyCFunction_Type");
  g_is_wanted.store(library.find("PySys_GetObject", g_sys_object) &&
                    library.find("Py_IsInitialized", g_is_initialized) && g_function_type != nullptr);
}

void replace_stats_call() noexcept {
  if (!g_is_wanted.load(std::memory_order_relaxed) || g_is_initialized() == 0 || !g_is_wanted.exchange(false)) return;
  auto* function = static_cast<std::byte*>(g_sys_object("_debugmallocstats"));
  if (function == nullptr || load_at<std::uintptr_t>(function, g_python.layout->object_type) !=
                                 reinterpret_cast<std::uintptr_t>(g_function_type))
    return;
  const auto* method = reinterpret_cast<const MethodDef*>(load_at<std::uintptr_t>(function, kFunctionMethod));
  if (method == nullptr || std::strcmp(method->name, "_debugmallocstats") != 0) return;
  g_method = *method;
  g_real_function = g_method.function;
  g_method.function = print_stats;
  __atomic_store_n(reinterpret_cast<const MethodDef**>(function + kFunctionMethod), &g_method, __ATOMIC_RELEASE);
}

}  // namespace whyrss::shim
