"""What all tests share: the processes that they start keep compiled modules, as processes do unless somebody forbids it.

Hundreds of commands, steps and simulated clusters are started; where `PYTHONDONTWRITEBYTECODE` is set, as in many images, each
would compile all that it imports anew.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
