# Hashes, regular expressions, fork, programs, signals.
use strict; use warnings;
$| = 1;
my %kept;
$kept{$_ % 9000} = "value $_" x 3 for 1 .. 300_000;
my $sum = 0; $sum += length for values %kept;
print "$sum\n";
my $text = join ' ', map { $kept{$_} } sort { $a <=> $b } keys %kept;
my $count = () = $text =~ /(\d+)value/g;
print "$count\n";
my $child = fork; if (!$child) { %kept = (); exit 3 }
waitpid $child, 0; print $? >> 8, "\n";
print system($ENV{PROBE}), "\n", `echo shell; exit 2`, $? >> 8, "\n";
open my $pipe, '|-', 'sort -r' or die; print $pipe "$_\n" for 1 .. 5; close $pipe;
$SIG{USR1} = sub { print "trapped\n" }; kill USR1 => $$;
my $done = eval { local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; 1 while 1; 1 }; print $@;
END { print "end\n"; }
exit 5;
