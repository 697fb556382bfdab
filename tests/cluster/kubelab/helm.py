"""RKE2's real helm-controller, and a stand-in for klipper-helm: an image with the real helm and charts in a folder."""

from dataclasses import dataclass
from pathlib import Path

from kubelab import box, images
from kubelab.control_plane import ControlPlane
from kubelab.images import Image
from kubelab.node import Node

JOB_IMAGE = "localhost/klipper-helm-stand-in:1"
SCRIPT = Path(__file__).with_name("helm_job.sh")
USER = "1000:1000"
"""helm-controller's Jobs insist on a user other than root."""

_NAME = "helm-controller"
_CRD = "/apis/helm.cattle.io/v1/helmcharts"


@dataclass(frozen=True)
class HelmController:
    """The controller as RKE2 runs it: for `kube-system` only."""

    plane: ControlPlane

    def start(self) -> None:
        """Start it and wait until its kinds are served."""
        command = [str(self.plane.programs["helm-controller"]), "--kubeconfig", str(self.plane.kubeconfig)]
        command += ["--namespace", "kube-system", "--controller-name", _NAME, "--default-job-image", JOB_IMAGE, "--threads", "2"]
        box.start(_NAME, command)
        box.until(lambda: self.plane.get(_CRD) is not None, _NAME)

    def stop(self) -> None:
        """End it."""
        box.stop(_NAME)


def load_job_image(node: Node, helm: Path, charts: Path) -> None:
    """Give a node the image of the Jobs, with the charts that lie in a folder."""
    files: dict[str, Path | str] = {"/usr/bin/helm": helm, "/charts": charts, "/usr/bin/entry": SCRIPT.read_text()}
    node.load(images.pack(Image(JOB_IMAGE, ("/usr/bin/entry",), files, USER), node.folder / "helm.tar"))
