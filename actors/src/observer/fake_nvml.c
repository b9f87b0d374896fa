/* A driver library of two GPUs for tests: the entry points that the observer uses, with made-up numbers. */
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version; unsigned long long total, reserved, free_, used; } memory;
static int handles[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index > 1) return 2;
  *handle = &handles[index];
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization *out) {
  out->gpu = *(int *)handle == 0 ? 85 : 0;
  out->memory = 10;
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory *out) {
  /* The second GPU has fallen off the bus. */
  if (*(int *)handle == 1) return 15;
  out->total = 1000;
  out->used = 600;
  out->reserved = 0;
  out->free_ = 400;
  return 0;
}
