"""Node images as a product of `branch_build`, by which Argo builds the newest commit of a Git branch."""

from pathlib import Path

from steps.contract.runs.revision import SpecSource
from workflows import image
from workflows.app.branch_build import BranchPlan, BranchProduct
from workflows.app.images import image_pipeline, image_specs
from workflows.app.run_options import ARGO, Wish
from workflows.nodeimage.image_spec import ImageSpec


def _plan(path: Path, loaded: ImageSpec, source: SpecSource) -> BranchPlan:
    """Return the plan of a commit's build. The run itself finds out if the image is published already."""
    resolved = image_specs.check(path, loaded, image_specs.lacking(loaded, ARGO))
    return BranchPlan(plan=image_pipeline.of_image(path, loaded, resolved).plan(path, loaded, Wish(source=source)))


IMAGE_BRANCH = BranchProduct(kind=image.KIND, build=image.build, read=image_pipeline.IMAGE.read, plan=_plan)
