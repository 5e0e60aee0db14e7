// Children by vfork run in the memory of their parent, and restrict themselves there.
#pragma once

namespace whyrss::shim {

// A vfork child that restricted itself leaves its parent's memory by exec or exit, and with it what it set there. True:
// it had. Undone where the exec failed.
bool leave_vfork_child() noexcept;
void stay_vfork_child() noexcept;

// Where the kernel may not be asked: whether a child by vfork may be running now.
void note_vfork() noexcept;
bool may_be_vfork_child() noexcept;

}  // namespace whyrss::shim
