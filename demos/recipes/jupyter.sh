#!/bin/bash
# Jupyter: a kernel that is recorded, and the growth of one cell. %%whyrss above a cell shows the same below it.
set -eu
python3 -m whyrss_ipython install
jupyter-execute --kernel_name=whyrss-python3 notebook.ipynb
whyrss report ~/.cache/whyrss/kernel-* --from 'In[2]' --to 'In[2]'
#>   info     40 MiB live Python objects (made at In[2]:4 in <module>)
