// What the parts of heap_hazards share.
#pragma once

namespace hazards {

extern char** g_arguments;  // behind WHAT

void say(const char* text);
void say(const char* text, long number);

// Blocks of all sizes come and go.
void churn(unsigned rounds);

// heap_hazards_flow.cc
void handlers();
void handlers_anywhere();
void jumps();
void jumps_anywhere();
void thread_ends();
void many_threads();
void after_main();
void plugin_gone();
void plugin_deep();
void plugin_deep_crossed();
void forks();
void programs();
void endless();

}  // namespace hazards
