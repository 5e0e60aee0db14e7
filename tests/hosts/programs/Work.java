// Threads, garbage, direct buffers, null checks by signal, deep recursion, a child process, a shutdown hook.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Work {
  static long churn(int seed) {
    Map<Integer, String> map = new HashMap<>();
    long sum = 0;
    for (int i = 0; i < 300000; i++) {
      map.put((i * 31 + seed) % 20000, "value" + i);
      sum += map.size();
    }
    return sum;
  }

  static int depth(int n) { return depth(n + 1) + 1; }

  public static void main(String[] words) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    List<Future<Long>> later = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      final int seed = i;
      later.add(pool.submit(() -> churn(seed)));
    }
    long sum = 0;
    for (Future<Long> one : later) sum += one.get();
    pool.shutdown();
    System.out.println("churn " + sum);
    int caught = 0;
    for (int i = 0; i < 20000; i++) {
      String nothing = i % 2 == 0 ? null : "x";
      try { caught += nothing.length() - 1; } catch (NullPointerException e) { caught++; }
    }
    System.out.println("null " + caught);
    try { depth(0); } catch (StackOverflowError e) { System.out.println("deep"); }
    long bytes = 0;
    for (int i = 0; i < 64; i++) bytes += ByteBuffer.allocateDirect(1 << 20).put(5, (byte) 1).capacity();
    System.out.println("direct " + bytes);
    System.gc();
    System.out.println("probe " + new ProcessBuilder(System.getenv("PROBE")).inheritIO().start().waitFor());
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
    System.exit(4);
  }
}
