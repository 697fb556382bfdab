"""Stage rke2: every host runs the wanted RKE2 release, the control plane is whole, and pods on all nodes reach each other."""
