"""Inputs of the tests of an image's life: recipes of a user's own, values of a site, a secret, and commands that leak it."""

from typing import Any, Final

import yaml

from workflows.nodeimage import recipe_files

ONE_BOOT: Final = {"firmware": ["bios"], "memory_mib": 1536, "timeout": "10m"}
CANARY: Final = b"canary-5e0d1b7a9c42"
TOKEN: Final = {"token": {"file": "./token"}}
ARGUMENT: Final = "bringup.test=1"
MORE: Final[dict[str, Any]] = {
    "apiVersion": "bringup/v1",
    "kind": "ImageRecipe",
    "name": "more",
    "description": "base with one small package more.",
    "extends": "base",
    "layers": [
        {
            "name": "site",
            "packages": ["less"],
            "commands": [{"run": "cat /run/secrets/token; wc -c < /run/secrets/token > /opt/length", "secrets": ["token"]}],
            "kernel_arguments": [ARGUMENT],
            "budget_mib": 5,
            "tests": [
                {
                    "name": "kernel_argument_arrives",
                    "incident": "An argument of the recipe stood in its manifest, and in no boot script.",
                    "run": f"grep -qwF {ARGUMENT} /proc/cmdline",
                    "where": "boot",
                }
            ],
        }
    ],
}
OF_SITE: Final = {"time_server": "ntp.example.org", "admin_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC00 admin"}
LEAKS: Final = {
    "copied": "cp /run/secrets/token /opt/x",
    "encoded": "base64 /run/secrets/token > /opt/x",
    "packed": "gzip -c /run/secrets/token > /opt/x.gz",
    "archived": "tar czf /opt/x.tgz -C /run/secrets token",
    "said": "cat /run/secrets/token /run/secrets/token >&2; exit 3",
}
"""Name of a layer → a careless command in it that leaks the secret."""
FAILING: Final = {
    "name": "rack_is_known",
    "incident": "Nodes of a new rack came up under the names of an old one.",
    "run": "echo no rack is known of this node; false",
    "where": "boot",
    "next_step": "enter the rack in the list of racks",
}


def failing() -> dict[str, Any]:
    """The shipped `base` with a boot test that fails: the same layers and files, so nothing is built or packed for it."""
    recipe: dict[str, Any] = yaml.safe_load((recipe_files.RECIPES / "base.yaml").read_text())
    recipe["layers"][0]["tests"].append(FAILING)
    return recipe
