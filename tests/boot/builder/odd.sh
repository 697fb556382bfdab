# What a root may hold beside plain files: each attribute, kind, mode and name that its copies in an image must keep.
perl -e 'my @marked = (["/usr/bin/tac", "security.capability", pack("H*", "0100000200200000" . "0" x 24)], ["/opt/noted", "user.note", "\xff\0="]);
for (@marked) { open(my $file, ">>", $$_[0]); close $file; syscall(188, @$_, length $$_[2], 0) == 0 or die "$$_[0]: $!\n" }' # setxattr
echo 1 > /opt/once; chown 7:8 /opt/once; chmod 4750 /opt/once; ln /opt/once /opt/twice
mkfifo /opt/pipe; mknod /opt/null c 1 3
mkdir -m 1777 '/opt/b\a'; touch "$(printf '/opt/\377')"; ln -s 'any where' '/opt/to a place'
rm /etc/issue; rm -r /etc/skel; mkdir /etc/skel; echo 1 > /etc/skel/x
