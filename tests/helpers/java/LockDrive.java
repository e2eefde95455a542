package lakeformat.tests;

import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.common.util.ReflectionUtils;
import org.apache.hudi.exception.HoodieLockException;
import org.apache.hudi.storage.StorageConfiguration;

/**
 * Holds a lock of Hudi on command. Arguments: the class of the lock provider, then options as name=value. Each line of
 * the input is "lock SECONDS", answered by true or false, or "unlock", answered by done.
 */
public class LockDrive {

  public static void main(String[] arguments) throws Exception {
    TypedProperties options = new TypedProperties();
    for (int i = 1; i < arguments.length; i++) {
      String[] option = arguments[i].split("=", 2);
      options.put(option[0], option[1]);
    }
    Class<?>[] types = {LockConfiguration.class, StorageConfiguration.class};
    LockProvider<?> lock =
        (LockProvider<?>) ReflectionUtils.loadClass(arguments[0], types, new LockConfiguration(options), null);
    Scanner input = new Scanner(System.in);
    while (input.hasNextLine()) {
      String[] words = input.nextLine().split(" ");
      if (words[0].equals("lock")) {
        System.out.println("answer: " + tryLock(lock, Long.parseLong(words[1])));
      } else {
        lock.unlock();
        System.out.println("answer: done");
      }
    }
    lock.close();
    System.exit(0);
  }

  private static boolean tryLock(LockProvider<?> lock, long seconds) throws InterruptedException {
    try {
      return lock.tryLock(seconds, TimeUnit.SECONDS);
    } catch (HoodieLockException another) { // Some providers throw it if another holder has the lock.
      return false;
    }
  }
}
