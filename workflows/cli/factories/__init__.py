"""The commands of `bringup factory`: build factories."""
