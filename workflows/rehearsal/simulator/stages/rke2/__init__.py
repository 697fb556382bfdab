"""Stage rke2: the playbooks that install RKE2, its servers, and the charts that it packages."""
