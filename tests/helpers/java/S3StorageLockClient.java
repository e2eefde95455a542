package org.apache.hudi.aws.transaction.lock;

import java.io.IOException;
import java.net.URI;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration;
import software.amazon.awssdk.core.ResponseInputStream;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.GetObjectResponse;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.PutObjectResponse;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * A stand-in for the class of this name in hudi-aws, which Hudi's StorageBasedLockProvider loads by name. It sends the
 * conditional requests of RFC-91 to the S3 server at the system property lock.endpoint. For tests only.
 */
public class S3StorageLockClient implements StorageLockClient {
  private final S3Client s3;
  private final String bucket;
  private final String key;

  public S3StorageLockClient(String ownerId, String lockFileUri, Properties properties) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(lockFileUri);
    bucket = place.getLeft();
    key = place.getRight();
    s3 = S3Client.builder()
        .endpointOverride(URI.create(System.getProperty("lock.endpoint")))
        .region(Region.US_EAST_1)
        .forcePathStyle(true)
        .httpClientBuilder(ApacheHttpClient.builder())
        .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("key", "secret")))
        .build();
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    try (ResponseInputStream<GetObjectResponse> in = s3.getObject(b -> b.bucket(bucket).key(key))) {
      return Pair.of(LockGetResult.SUCCESS, Option.of(StorageLockFile.createFromStream(in, in.response().eTag())));
    } catch (S3Exception e) {
      LockGetResult result = e.statusCode() == 404 ? LockGetResult.NOT_EXISTS : LockGetResult.UNKNOWN_ERROR;
      return Pair.of(result, Option.empty());
    } catch (IOException e) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData lock, Option<StorageLockFile> previous) {
    AwsRequestOverrideConfiguration.Builder condition = AwsRequestOverrideConfiguration.builder();
    if (previous.isPresent()) {
      condition.putHeader("If-Match", previous.get().getVersionId());
    } else {
      condition.putHeader("If-None-Match", "*");
    }
    PutObjectRequest request =
        PutObjectRequest.builder().bucket(bucket).key(key).overrideConfiguration(condition.build()).build();
    try {
      PutObjectResponse done = s3.putObject(request, RequestBody.fromBytes(StorageLockFile.toByteArray(lock)));
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(lock, done.eTag())));
    } catch (S3Exception e) {
      boolean isTaken = e.statusCode() == 412;
      return Pair.of(isTaken ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String uri, boolean checkExistsFirst) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    try {
      return Option.of(s3.getObjectAsBytes(b -> b.bucket(place.getLeft()).key(place.getRight())).asUtf8String());
    } catch (S3Exception e) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String uri, String content) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    s3.putObject(b -> b.bucket(place.getLeft()).key(place.getRight()), RequestBody.fromString(content));
    return true;
  }

  @Override
  public void close() {
    s3.close();
  }
}
