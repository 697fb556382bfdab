"""The sections about GPUs, which host groups may have too: the product of the accelerator, and how its GPUs are shared."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.accelerators import PRODUCTS, Product
from workflows.spec.fields import LabelValue, Section, problem

ProductName = Literal["A100-40GB", "A100-80GB", "H100", "H100-NVL", "H200", "B200", "GB200", "B300", "L40S"]


class Accelerator(Section):
    """Section `accelerator` of a spec: the GPUs, and who installs their driver."""

    product: ProductName = Field(description="GPU product; the SXM variant if the name does not say otherwise.", examples=["H200"])
    per_node: Annotated[int, Field(ge=1, le=16)] = Field(default=8, description="GPUs in each GPU machine.", examples=[8])
    product_label: LabelValue | None = Field(
        default=None,
        description="Label nvidia.com/gpu.product, if it differs from that of bringup's table.",
        examples=["NVIDIA-H200"],
    )
    pcie_generation: Annotated[int, Field(ge=3, le=6)] | None = Field(
        default=None,
        description="PCIe generation of the machines' GPU slots, if it is below that of the product.",
        examples=[4],
    )
    driver: Literal["host", "operator"] = Field(
        default="operator",
        description="Who installs the driver: the image of the machine, or the GPU Operator; never both.",
        examples=["operator"],
    )
    driver_version: Annotated[str, StringConstraints(pattern=r"^[0-9]{3}(\.[0-9]{1,3}){0,2}$")] | None = Field(
        default=None,
        description="Driver version, in quotes; required with driver: host. Default with driver: operator: that of the chart.",
        examples=["580.126.20"],
    )
    operator_mode: Literal["cluster_policy", "gpu_cluster"] = Field(
        default="cluster_policy",
        description="cluster_policy: device plugin; gpu_cluster: DRA with GPU Operator 26.7 (new clusters only).",
        examples=["cluster_policy"],
    )

    @model_validator(mode="after")
    def _host_driver_is_known(self) -> "Accelerator":
        if self.driver == "host" and self.driver_version is None:
            raise problem("driver: host needs the version that the machines have", 'add driver_version: "580.126.20"')
        return self

    @property
    def facts(self) -> Product:
        """Facts about the product from the table `PRODUCTS`."""
        return PRODUCTS[self.product]

    @property
    def label(self) -> str:
        """The expected label `nvidia.com/gpu.product` of whole GPUs."""
        return self.product_label or self.facts.label

    @property
    def expected_pcie_generation(self) -> int:
        """The PCIe generation that GPUs must reach under load; 0 if the product has no such link."""
        return self.pcie_generation or self.facts.pcie_generation


class GroupAccelerator(Section):
    """Section `accelerator` of a host group: what differs from the section `accelerator` of the spec, which says the rest."""

    product: ProductName | None = Field(
        default=None, description="GPU product of these machines; default: accelerator.product.", examples=["L40S"]
    )
    per_node: Annotated[int, Field(ge=1, le=16)] | None = Field(
        default=None, description="GPUs in each machine of the group; default: accelerator.per_node.", examples=[4]
    )
    product_label: LabelValue | None = Field(
        default=None,
        description="Label nvidia.com/gpu.product, if it differs from that of bringup's table.",
        examples=["NVIDIA-L40S"],
    )
    pcie_generation: Annotated[int, Field(ge=3, le=6)] | None = Field(
        default=None,
        description="PCIe generation of the GPU slots of the group, if it is below that of the product.",
        examples=[4],
    )

    def merged(self, general: Accelerator) -> Accelerator:
        """Return the spec's section with the differences of this group. A label belongs to its product and is not inherited."""
        product = self.product or general.product
        inherited = general.product_label if product == general.product else None
        differences = {
            "product": product,
            "per_node": self.per_node or general.per_node,
            "product_label": self.product_label or inherited,
            "pcie_generation": self.pcie_generation or (general.pcie_generation if product == general.product else None),
        }
        return general.model_copy(update=differences)


class GpuSharing(Section):
    """Section `sharing` of a spec: how GPUs are shared between pods."""

    mode: Literal["none", "time_slicing", "mps", "mig", "dra"] = Field(
        default="none", description="Sharing model. Time-slicing and MPS give no isolation.", examples=["none"]
    )
    replicas: Annotated[int, Field(ge=2, le=64)] | None = Field(
        default=None, description="Shares per GPU (time_slicing, mps).", examples=[4]
    )
    rename: bool = Field(
        default=True,
        description="Advertise shares as nvidia.com/gpu.shared, so that a share is not mistaken for a GPU.",
        examples=[True],
    )
    fail_requests_greater_than_one: bool = Field(
        default=True, description="Refuse pods that request two shares (time_slicing).", examples=[True]
    )
    profile: Annotated[str, StringConstraints(pattern=r"^[1-7]g\.[0-9]{1,3}gb$")] | None = Field(
        default=None, description="MIG profile on every GPU (mig).", examples=["1g.18gb"]
    )
    strategy: Literal["single", "mixed"] = Field(
        default="single",
        description="MIG strategy: single advertises nvidia.com/gpu, mixed nvidia.com/mig-PROFILE.",
        examples=["single"],
    )

    @model_validator(mode="after")
    def _fields_fit_mode(self) -> "GpuSharing":
        shares = self.mode in ("time_slicing", "mps")
        if shares and self.replicas is None:
            raise problem(f"mode {self.mode} needs the number of shares", "add replicas: 4")
        if not shares and self.replicas is not None:
            raise problem(f"replicas has no meaning with mode {self.mode}", "remove replicas, or use time_slicing or mps")
        if self.mode == "mig" and self.profile is None:
            raise problem("mode mig needs a profile", "add a profile of your product, as in profile: 1g.18gb on H200")
        if self.mode != "mig" and self.profile is not None:
            raise problem(f"profile has no meaning with mode {self.mode}", "remove profile, or use mode: mig")
        return self
