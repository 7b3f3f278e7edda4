/* Where a bare program of the tests prints. */
#ifdef __cplusplus
extern "C"
#endif
int puts(const char *text);
