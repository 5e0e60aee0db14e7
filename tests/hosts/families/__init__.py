"""The hosts, by family. Each family is a function from the command line's options to its hosts."""
from families import (allocators, browser, cpython, filters, languages, media, servers, shells, state, stress, tools,
                      tracers)

FAMILIES = [state.hosts, shells.hosts, tools.hosts, media.hosts, languages.hosts, servers.hosts, filters.hosts,
            tracers.hosts, allocators.hosts, browser.hosts, stress.hosts, cpython.hosts]
