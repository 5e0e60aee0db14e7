# Garbage, threads, fibers, fork, programs, signals.
kept = {}
300_000.times { |i| kept[i % 10_000] = "value #{i}" * 2 }
puts kept.values.sum(&:length)
puts 4.times.map { |n| Thread.new { (1..20_000).map { |i| (i * n).to_s }.join.length } }.map(&:value).inspect
fiber = Fiber.new { 3.times { |i| Fiber.yield i }; :done }
puts 4.times.map { fiber.resume }.inspect
child = fork { kept.clear; GC.start; exit!(3) }
puts Process.wait2(child)[1].exitstatus
puts system(ENV['PROBE']).inspect, `echo from a shell; exit 2`, $?.exitstatus
read, write = IO.pipe
Process.wait(spawn('cat', in: read, out: :out)) if write.write("through\n") && write.close.nil?
trap('USR1') { puts 'trapped' }
Process.kill('USR1', Process.pid)
sleep 0.1
def deep(n) = deep(n + 1)
begin
  deep(0)
rescue SystemStackError
  puts 'deep'
end
GC.compact if GC.respond_to?(:compact)
at_exit { puts 'at exit' }
exit 6
