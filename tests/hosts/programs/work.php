<?php
// Arrays, strings, regular expressions, programs.
$kept = [];
for ($i = 0; $i < 300000; $i++) $kept[$i % 9000] = str_repeat("v$i", 3);
echo array_sum(array_map('strlen', $kept)), "\n";
echo preg_match_all('/(\d+)v/', implode('', $kept), $found), ' ', md5(serialize($kept)), "\n";
echo strlen(json_encode($kept)), ' ', count(json_decode(json_encode($kept), true)), "\n";
system(getenv('PROBE'), $status);
echo $status, "\n", shell_exec('echo shell'), "\n";
$process = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
fwrite($pipes[0], 'through'); fclose($pipes[0]);
echo stream_get_contents($pipes[1]), ' ', proc_close($process), "\n";
function generate() { for ($i = 0; $i < 5; $i++) yield $i; }
echo implode(',', iterator_to_array(generate())), "\n";
gc_collect_cycles();
exit(9);
