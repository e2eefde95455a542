package lakeformat.tests;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.apache.hudi.client.WriteStatus;
import org.apache.hudi.client.validator.SparkPreCommitValidator;
import org.apache.hudi.common.data.HoodieData;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.HoodieSparkTable;
import org.apache.hudi.table.action.HoodieWriteMetadata;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/**
 * Stops a Hudi write between its files and its commit. It creates the folder of the option lakeformat.tests.gate and
 * goes on when there is a file of this name with the ending ".open". Hudi holds no lock meanwhile.
 */
public class GateValidator<T, I, K, O extends HoodieData<WriteStatus>> extends SparkPreCommitValidator<T, I, K, O> {

  public GateValidator(HoodieSparkTable<T> table, HoodieEngineContext context, HoodieWriteConfig config) {
    super(table, context, config);
  }

  @Override
  public void validate(String instantTime, HoodieWriteMetadata<O> result, Dataset<Row> before, Dataset<Row> after) {
    Path gate = Path.of(getWriteConfig().getProps().getProperty("lakeformat.tests.gate"));
    Path open = Path.of(gate + ".open");
    try {
      Files.createDirectory(gate);
      while (!Files.exists(open)) {
        Thread.sleep(20);
      }
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  protected void validateRecordsBeforeAndAfter(Dataset<Row> before, Dataset<Row> after, Set<String> partitions) {}
}
